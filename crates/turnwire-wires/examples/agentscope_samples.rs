//! Prints random events and messages as the `agentscope` wire writes them, one per line, for the
//! test that has the real package validate them: `agentscope_samples SEED COUNT`.

use std::io::{self, Write};
use turnwire_testkit::{Rng, values};
use turnwire_wires::Wire;

fn main() -> io::Result<()> {
    let mut numbers = std::env::args().skip(1).map(|number| number.parse::<u64>());
    let (Some(Ok(seed)), Some(Ok(count))) = (numbers.next(), numbers.next()) else {
        return Err(io::Error::other("usage: agentscope_samples SEED COUNT"));
    };
    let mut rng = Rng::with_seed(seed);
    let mut out = io::BufWriter::new(io::stdout().lock());
    for _ in 0..count {
        let event = Wire::Agentscope.encode_event(&values::event(&mut rng));
        writeln!(out, r#"{{"event":{event}}}"#)?;
        let message = Wire::Agentscope.encode_message(&values::message(&mut rng));
        writeln!(out, r#"{{"message":{message}}}"#)?;
    }
    out.flush()
}
