// Amounts of money, in the currency of the server's settings.
const formats = new Map<string, Intl.NumberFormat>();

/** For example `$0.00123`, `$12.50`: small amounts keep their first digits. */
export function formatMoney(amount: number, currency: string): string {
  const digits = amount !== 0 && Math.abs(amount) < 1 ? 5 : 2;
  const key = `${currency} ${digits}`;
  let format = formats.get(key);
  if (format === undefined) {
    try {
      format = new Intl.NumberFormat("en", {
        style: "currency",
        currency,
        minimumFractionDigits: 2,
        maximumFractionDigits: digits,
      });
    } catch {
      format = new Intl.NumberFormat("en", { minimumFractionDigits: 2, maximumFractionDigits: digits });
    }
    formats.set(key, format);
  }
  return format.format(amount);
}

export const count = (number: number): string => number.toLocaleString("en");
