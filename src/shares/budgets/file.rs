//! `BUDGETS_FILE`: what users, sessions and the whole deployment may spend, in JSON.
//!
//! ```json
//! {
//!   "deployment": [{ "per": "month", "dollars": 2000 }],
//!   "classes": {
//!     "default": [{ "per": "day", "dollars": 2.5 }, { "per": "session", "tokens": 1000000 }],
//!     "pro": [{ "per": "month", "dollars": 50 }]
//!   },
//!   "users": { "ann": "pro" },
//!   "services": { "shop": "pro" }
//! }
//! ```

use crate::{
    config::listed::contents,
    core::budget::{Limit, Period},
};
use serde::Deserialize;
use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

/// The class of users who have no other.
pub(super) const DEFAULT: &str = "default";

/// The most that one budget may allow, in dollars.
const DOLLARS_MAX: f64 = 1e9;

/// A budget: the most that may be spent in a period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Budget {
    pub(crate) per: Period,
    pub(crate) limit: Limit,
}

/// The budgets of a server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Rules {
    pub(super) deployment: Vec<Budget>,
    classes: BTreeMap<String, Vec<Budget>>,
    users: BTreeMap<String, String>,
    services: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Listed {
    #[serde(default)]
    deployment: Vec<ListedBudget>,
    #[serde(default)]
    classes: BTreeMap<String, Vec<ListedBudget>>,
    #[serde(default)]
    users: BTreeMap<String, String>,
    #[serde(default)]
    services: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ListedBudget {
    per: Per,
    #[serde(default)]
    dollars: Option<f64>,
    #[serde(default)]
    tokens: Option<u64>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Per {
    Day,
    Month,
    Session,
}

impl Rules {
    /// Reads the budgets from a file.
    ///
    /// # Errors
    /// The file cannot be read, or what is wrong in it.
    pub(crate) fn read(file: &Path) -> Result<Self, String> {
        let rules = contents(file).map_err(|error| format!("cannot be read: {error}"));
        let rules = rules.and_then(|text| Self::parsed(&text));
        rules.map_err(|why| format!("BUDGETS_FILE {}: {why}", file.display()))
    }

    fn parsed(text: &[u8]) -> Result<Self, String> {
        let wrong = |error: serde_json::Error| error.to_string();
        // A list would also be read as the fields in their order.
        serde_json::from_slice::<serde_json::Map<_, _>>(text).map_err(wrong)?;
        let listed: Listed = serde_json::from_slice(text).map_err(wrong)?;
        let deployment = budgets("deployment", listed.deployment)?;
        if deployment.iter().any(|budget| budget.per == Period::Session) {
            return Err("`deployment`: a budget per session belongs to a class".to_owned());
        }
        let classes = listed.classes.into_iter().map(|(class, listed)| {
            let budgets = budgets(&format!("classes.{class}"), listed)?;
            Ok((class, budgets))
        });
        let classes = classes.collect::<Result<BTreeMap<_, _>, String>>()?;
        for (place, named) in [("users", &listed.users), ("services", &listed.services)] {
            for (name, class) in named {
                if !classes.contains_key(class) {
                    return Err(format!("`{place}.{name}` names the class `{class}`, which `classes` does not have"));
                }
            }
        }
        Ok(Self { deployment, classes, users: listed.users, services: listed.services })
    }

    /// Returns true if nothing is limited.
    pub(crate) fn is_empty(&self) -> bool {
        self.deployment.is_empty() && self.classes.values().all(Vec::is_empty)
    }

    /// Returns the class that is named for a user: in the file, by their token, or for their service, in this order.
    pub(crate) fn named<'a>(&'a self, owner: &str, claimed: Option<&'a str>) -> Option<&'a str> {
        let service = owner.strip_prefix("service:").and_then(|rest| rest.split_once('|')).map(|(service, _)| service);
        let of_service = service.and_then(|service| self.services.get(service)).map(String::as_str);
        self.users.get(owner).map(String::as_str).or(claimed).or(of_service)
    }

    /// Returns the class of a user whose budgets hold for them. A token may name one that has none.
    pub(crate) fn class_of<'a>(&'a self, owner: &str, claimed: Option<&'a str>) -> Option<&'a str> {
        let claimed = claimed.filter(|class| self.classes.contains_key(*class));
        let class = self.named(owner, claimed).unwrap_or(DEFAULT);
        self.classes.contains_key(class).then_some(class)
    }

    /// Returns the budgets of a class.
    pub(crate) fn of_class(&self, class: &str) -> &[Budget] {
        self.classes.get(class).map_or(&[], Vec::as_slice)
    }
}

fn budgets(place: &str, listed: Vec<ListedBudget>) -> Result<Vec<Budget>, String> {
    let mut seen = BTreeSet::new();
    let budgets = listed.into_iter().enumerate().map(|(at, listed)| {
        let wrong = |why: &str| Err(format!("`{place}[{at}]`: {why}"));
        let per = match listed.per {
            Per::Day => Period::Day,
            Per::Month => Period::Month,
            Per::Session => Period::Session,
        };
        if !seen.insert(per) {
            return wrong("there is another budget for this period; give both limits in one");
        }
        let nano_usd = match listed.dollars {
            None => None,
            Some(dollars) if (0.0..=DOLLARS_MAX).contains(&dollars) => Some((dollars * 1e9).round() as u64),
            Some(_) => return wrong("`dollars` must be from 0 to 1000000000"),
        };
        if nano_usd.is_none() && listed.tokens.is_none() {
            return wrong("it needs `dollars` or `tokens`");
        }
        Ok(Budget { per, limit: Limit { nano_usd, tokens: listed.tokens } })
    });
    budgets.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"{
        "deployment": [{ "per": "month", "dollars": 2000 }],
        "classes": {
            "default": [{ "per": "day", "dollars": 2.5 }, { "per": "session", "tokens": 1000000 }],
            "pro": [{ "per": "month", "dollars": 50, "tokens": 7 }],
            "free": []
        },
        "users": { "ann": "pro", "https://id.example|17": "free" },
        "services": { "shop": "pro" }
    }"#;

    #[test]
    fn a_user_has_the_class_of_the_file_the_token_or_the_service() {
        let rules = Rules::parsed(FILE.as_bytes()).unwrap();
        for (owner, claimed, expected) in [
            ("ann", None, "pro"),
            ("ann", Some("free"), "pro"),
            ("bob", None, "default"),
            ("bob", Some("free"), "free"),
            ("bob", Some("unknown"), "default"),
            ("", None, "default"),
            ("service:shop|bob", None, "pro"),
            ("service:other|bob", None, "default"),
            ("https://id.example|17", Some("pro"), "free"),
        ] {
            assert_eq!(rules.class_of(owner, claimed), Some(expected), "{owner} {claimed:?}");
        }
        let day = Limit { nano_usd: Some(2_500_000_000), tokens: None };
        let session = Limit { nano_usd: None, tokens: Some(1_000_000) };
        let expected = [Budget { per: Period::Day, limit: day }, Budget { per: Period::Session, limit: session }];
        assert_eq!(rules.of_class("default"), expected);
        assert!(!rules.is_empty() && rules.of_class("free").is_empty());
        let without_default = Rules::parsed(br#"{ "classes": { "pro": [] } }"#).unwrap();
        assert_eq!((without_default.class_of("bob", None), without_default.is_empty()), (None, true));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, expected) in [
            ("", "EOF"),
            ("[]", "invalid type"),
            (r#"{ "budget": [] }"#, "unknown field `budget`"),
            (r#"{ "deployment": [{ "per": "week", "dollars": 1 }] }"#, "unknown variant `week`"),
            (r#"{ "deployment": [{ "per": "day" }] }"#, "`deployment[0]`: it needs `dollars` or `tokens`"),
            (r#"{ "deployment": [{ "per": "session", "tokens": 1 }] }"#, "belongs to a class"),
            (r#"{ "deployment": [{ "per": "day", "dollars": -1 }] }"#, "`dollars` must be from 0"),
            (r#"{ "deployment": [{ "per": "day", "tokens": -1 }] }"#, "invalid value"),
            (
                r#"{ "classes": { "a": [{ "per": "day", "tokens": 1 }, { "per": "day", "dollars": 1 }] } }"#,
                "`classes.a[1]`: there is another budget for this period",
            ),
            (r#"{ "users": { "ann": "pro" } }"#, "`users.ann` names the class `pro`"),
            (r#"{ "services": { "shop": "pro" } }"#, "`services.shop` names the class `pro`"),
        ] {
            let error = Rules::parsed(text.as_bytes()).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
