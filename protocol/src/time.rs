//! Points in time, milliseconds since 1970 inside, RFC 3339 on the wire.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// Milliseconds since 1970-01-01T00:00:00Z. On the wire `2026-11-21T06:45:04.123Z`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[cfg_attr(feature = "codegen", schemars(with = "String", extend("format" = "date-time")), ts(type = "string"))]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// Returns this time plus `millis`, saturating.
    #[must_use]
    pub fn plus_millis(self, millis: u64) -> Self {
        Self(self.0.saturating_add(i64::try_from(millis).unwrap_or(i64::MAX)))
    }

    /// Returns the milliseconds from `earlier` to this time; 0 if it is not earlier (clocks may step back).
    #[must_use]
    pub fn millis_since(self, earlier: Self) -> u64 {
        u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0)
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = jiff::Timestamp::from_millisecond(self.0).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
        write!(f, "{time:.3}")
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        let time: jiff::Timestamp = text.parse().map_err(serde::de::Error::custom)?;
        Ok(Self(time.as_millisecond()))
    }
}

#[cfg(test)]
mod tests {
    use super::Timestamp;

    #[test]
    fn a_time_is_written_with_milliseconds_and_read_back() {
        let time = Timestamp(1_795_243_504_123);
        let text = serde_json::to_string(&time).unwrap();
        assert_eq!(text, "\"2026-11-21T06:45:04.123Z\"");
        assert_eq!(serde_json::from_str::<Timestamp>(&text).unwrap(), time);
        assert_eq!(serde_json::to_string(&Timestamp(0)).unwrap(), "\"1970-01-01T00:00:00.000Z\"");
    }
}
