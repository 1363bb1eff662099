//! Limits the rate of HTTP/2 frames that carry no request: pings, settings, resets, empty data.
//! They are cheap to send, but cost work to answer.

use std::io;
use std::time::Duration;
use tokio::time::Instant;

/// The connection preface of a client.
const PREFACE: usize = 24;
/// The length of a frame head.
const HEAD: usize = 9;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const WINDOW_UPDATE: u8 = 8;

/// The steady rate of such frames: 1,000 a second.
const INTERVAL: Duration = Duration::from_millis(1);
/// How far ahead of that a client may be: 10,000 frames.
const BURST: Duration = Duration::from_secs(10);
/// A client that receives much sends many of these.
const WINDOW_UPDATES_PER_FRAME: u32 = 20;

/// Follows the frames of one connection.
#[derive(Debug)]
pub(super) struct FrameCounter {
    /// Bytes until the next head begins.
    skip: usize,
    head: [u8; HEAD],
    /// How much of the head has come.
    filled: usize,
    /// When the next frame is due at the steady rate.
    due: Option<Instant>,
}

impl Default for FrameCounter {
    fn default() -> Self {
        Self { skip: PREFACE, head: [0; HEAD], filled: 0, due: None }
    }
}

impl FrameCounter {
    /// Reads received bytes. An error closes the connection.
    pub(super) fn read(&mut self, mut bytes: &[u8], now: Instant) -> io::Result<()> {
        while !bytes.is_empty() {
            if self.skip > 0 {
                let count = self.skip.min(bytes.len());
                self.skip -= count;
                bytes = bytes.get(count..).unwrap_or_default();
                continue;
            }
            let count = (HEAD - self.filled).min(bytes.len());
            let (part, rest) = bytes.split_at(count);
            if let Some(room) = self.head.get_mut(self.filled..self.filled + count) {
                room.copy_from_slice(part);
            }
            bytes = rest;
            self.filled += count;
            if self.filled == HEAD {
                self.filled = 0;
                let [a, b, c, kind, ..] = self.head;
                let length = u32::from_be_bytes([0, a, b, c]);
                self.skip = usize::try_from(length).unwrap_or(usize::MAX);
                self.count(kind, length, now)?;
            }
        }
        Ok(())
    }

    fn count(&mut self, kind: u8, length: u32, now: Instant) -> io::Result<()> {
        let cost = match kind {
            // The request rate and the body timeouts limit these.
            HEADERS => return Ok(()),
            DATA if length > 0 => return Ok(()),
            WINDOW_UPDATE => INTERVAL / WINDOW_UPDATES_PER_FRAME,
            _ => INTERVAL,
        };
        let due = self.due.map_or(now, |due| due.max(now)) + cost;
        self.due = Some(due);
        if due > now + BURST {
            return Err(io::Error::other("too many HTTP/2 frames without a request"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PING: u8 = 6;

    fn frame(kind: u8, payload: usize) -> Vec<u8> {
        let length = u32::try_from(payload).unwrap().to_be_bytes();
        let mut frame = vec![length[1], length[2], length[3], kind, 0, 0, 0, 0, 1];
        frame.resize(HEAD + payload, 0);
        frame
    }

    /// How many of these frames are taken, out of 300,000, in pieces of so many bytes.
    fn taken(frame: &[u8], piece: usize) -> usize {
        let now = Instant::now();
        let mut counter = FrameCounter::default();
        counter.read(&[0; PREFACE], now).unwrap();
        let is_taken = |_: &usize| frame.chunks(piece).all(|part| counter.read(part, now).is_ok());
        (0..300_000).take_while(is_taken).count()
    }

    #[tokio::test]
    async fn frames_that_bring_nothing_are_bounded() {
        for (kind, payload) in [(PING, 8), (4, 0), (4, 6), (3, 4), (2, 5), (DATA, 0), (99, 100)] {
            for piece in [1, 7, 1_000] {
                assert_eq!(taken(&frame(kind, payload), piece), 10_000, "{kind} {payload}");
            }
        }
        assert_eq!(taken(&frame(WINDOW_UPDATE, 4), 13), 200_000);
    }

    #[tokio::test]
    async fn requests_and_bodies_are_not_counted_here() {
        assert_eq!(taken(&frame(HEADERS, 20), 29), 300_000);
        assert_eq!(taken(&frame(DATA, 1), 10), 300_000);
    }

    #[tokio::test]
    async fn frames_at_the_rate_are_taken_for_ever() {
        let mut now = Instant::now();
        let mut counter = FrameCounter::default();
        counter.read(&[0; PREFACE], now).unwrap();
        for _ in 0..100_000 {
            counter.read(&frame(PING, 8), now).unwrap();
            now += INTERVAL;
        }
    }
}
