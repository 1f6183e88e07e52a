//! Ids made by the server: short, because every frame carries them, and unique within a session.

use reseed_protocol::ids::InvalidId;
use std::str::FromStr;

/// The 32 characters of an id, 5 bits each, without look-alikes.
const ALPHABET: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";

/// Characters per id: 60 bits, so a session with a million entries has a 1 in 2 million chance of a collision.
const ID_CHARS: u32 = 12;

/// A stream of ids (SplitMix64). The seed comes from outside so that a test can repeat the stream.
#[derive(Debug, Clone)]
pub struct IdSource {
    state: u64,
}

impl IdSource {
    /// Creates the stream for a seed. In the server, the seed comes from the system's random number generator.
    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        Self { state: seed }
    }

    /// Returns the next 64 pseudo-random bits.
    pub fn next_bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.state;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// Returns the next id as text.
    pub fn next_text(&mut self) -> String {
        let mut bits = self.next_bits();
        (0..ID_CHARS)
            .map(|_| {
                let letter = ALPHABET[(bits & 31) as usize];
                bits >>= 5;
                char::from(letter)
            })
            .collect()
    }

    /// Returns the next id as the requested id type.
    pub fn next_id<T: FromStr<Err = InvalidId>>(&mut self) -> T {
        self.next_text().parse().expect("twelve letters are an id")
    }
}

#[cfg(test)]
mod tests {
    use super::IdSource;
    use reseed_protocol::EntryId;
    use std::collections::HashSet;

    #[test]
    fn a_seed_repeats_its_stream_without_duplicates() {
        let (mut a, mut b) = (IdSource::seeded(7), IdSource::seeded(7));
        let ids: HashSet<EntryId> = (0..10_000).map(|_| a.next_id()).collect();
        assert_eq!(ids.len(), 10_000);
        assert!((0..10_000).all(|_| ids.contains(&b.next_id())));
    }
}
