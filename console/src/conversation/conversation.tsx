export function Conversation({ session }: { session: string | null }) {
  return <main>{session}</main>;
}
