//! Periods of budgets: days and months in UTC, and the life of a session.

use reseed_protocol::Timestamp;

const DAY_MILLIS: i64 = 24 * 60 * 60 * 1_000;

/// The time for which a budget is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Period {
    /// A day.
    Day,
    /// A calendar month.
    Month,
    /// The whole life of a session.
    Session,
}

impl Period {
    /// Returns its name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Month => "month",
            Self::Session => "session",
        }
    }

    /// Returns the start of the period in which a time lies.
    #[must_use]
    pub fn start(self, now: Timestamp) -> Timestamp {
        let day = now.0.div_euclid(DAY_MILLIS);
        match self {
            Self::Day => Timestamp(day * DAY_MILLIS),
            Self::Month => {
                let (year, month) = month_of(day);
                Timestamp(first_day(year, month) * DAY_MILLIS)
            }
            Self::Session => Timestamp(i64::MIN),
        }
    }

    /// Returns the end of that period, when the budget is filled again; `None` if it never is.
    #[must_use]
    pub fn end(self, now: Timestamp) -> Option<Timestamp> {
        let day = now.0.div_euclid(DAY_MILLIS);
        match self {
            Self::Day => Some(Timestamp((day + 1) * DAY_MILLIS)),
            Self::Month => {
                let (year, month) = month_of(day);
                let (year, month) = if month == 12 { (year + 1, 1) } else { (year, month + 1) };
                Some(Timestamp(first_day(year, month) * DAY_MILLIS))
            }
            Self::Session => None,
        }
    }
}

/// Days of 400 years, after which the calendar repeats.
const ERA_DAYS: i64 = 146_097;

/// Returns the year and the month of a day since 1970. Years are counted from March, so that leap days come last.
fn month_of(day: i64) -> (i64, i64) {
    let day = day + 719_468;
    let (era, of_era) = (day.div_euclid(ERA_DAYS), day.rem_euclid(ERA_DAYS));
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + era * 400 + i64::from(month <= 2), month)
}

/// Returns the day since 1970 on which a month begins.
fn first_day(year: i64, month: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * (if month > 2 { month - 3 } else { month + 9 }) + 2) / 5;
    era * ERA_DAYS + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_begins_and_ends_at_midnight_utc() {
        let time = |text: &str| -> Timestamp { serde_json::from_value(text.into()).unwrap() };
        for (now, day, next_day, month, next_month) in [
            ("2026-11-29T23:59:59.999Z", "2026-11-29", "2026-11-30", "2026-11-01", "2026-12-01"),
            ("2026-12-31T00:00:00.000Z", "2026-12-31", "2027-01-01", "2026-12-01", "2027-01-01"),
            ("2024-02-29T12:00:00.000Z", "2024-02-29", "2024-03-01", "2024-02-01", "2024-03-01"),
            ("2100-02-28T12:00:00.000Z", "2100-02-28", "2100-03-01", "2100-02-01", "2100-03-01"),
            ("1970-01-01T00:00:00.000Z", "1970-01-01", "1970-01-02", "1970-01-01", "1970-02-01"),
            ("1969-12-31T23:00:00.000Z", "1969-12-31", "1970-01-01", "1969-12-01", "1970-01-01"),
        ] {
            let now = time(now);
            let midnight = |date: &str| time(&format!("{date}T00:00:00Z"));
            assert_eq!((Period::Day.start(now), Period::Day.end(now)), (midnight(day), Some(midnight(next_day))));
            assert_eq!(
                (Period::Month.start(now), Period::Month.end(now)),
                (midnight(month), Some(midnight(next_month)))
            );
        }
        assert_eq!(Period::Session.end(Timestamp(0)), None);
        // Every month begins where the one before ends.
        let (mut at, mut months) = (time("1999-12-01T00:00:00Z"), 0);
        while let Some(end) = Period::Month.end(at).filter(|end| *end < time("2101-01-01T00:00:00Z")) {
            assert_eq!(Period::Month.start(end), end);
            assert!((28..=31).contains(&((end.0 - at.0) / DAY_MILLIS)), "{at}");
            (at, months) = (end, months + 1);
        }
        assert_eq!(months, 101 * 12);
    }
}
