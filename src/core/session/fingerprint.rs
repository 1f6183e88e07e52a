//! A hash that stays the same across versions and machines: it is stored with commands and answers.

/// FNV-1a, 64 bits. Not for secrets: it tells "the same content" from "other content" of one honest client.
#[must_use]
pub fn fingerprint(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_published_values_hold() {
        assert_eq!(super::fingerprint(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(super::fingerprint(b"foobar"), 0x8594_4171_f739_67e8);
    }
}
