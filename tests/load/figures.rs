//! Measured figures with their goals.

use std::{fmt, time::Duration};

/// The goal of a figure.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Goal {
    AtMost(f64),
    AtLeast(f64),
    /// For information.
    None,
}

impl Goal {
    fn is_met(self, value: f64) -> bool {
        match self {
            Self::AtMost(most) => value <= most,
            Self::AtLeast(least) => value >= least,
            Self::None => true,
        }
    }
}

/// Figures in the order in which they were measured, each printed at once.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    met: usize,
    missed: Vec<String>,
}

impl Figures {
    /// Prints a figure with its goal.
    pub(crate) fn add(&mut self, name: &str, value: f64, unit: &str, goal: Goal) {
        let met = goal.is_met(value);
        let verdict = match goal {
            Goal::None => String::new(),
            Goal::AtMost(most) => format!("goal at most {most}: {}", if met { "met" } else { "MISSED" }),
            Goal::AtLeast(least) => format!("goal at least {least}: {}", if met { "met" } else { "MISSED" }),
        };
        println!("{name:<66} {value:>10.2} {unit:<6} {verdict}");
        match goal {
            Goal::None => {}
            _ if met => self.met += 1,
            _ => self.missed.push(name.to_owned()),
        }
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "goals met: {}, missed: {}", self.met, self.missed.len())?;
        self.missed.iter().try_for_each(|name| write!(f, "\n  missed: {name}"))
    }
}

/// Returns the median; zero if there are none.
pub(crate) fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

/// Returns the median of numbers.
pub(crate) fn median_of(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

/// Returns the milliseconds.
pub(crate) fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
