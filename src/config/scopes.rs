//! Scopes: what credentials allow.

use std::fmt;

/// One permission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Read, write, create and delete one's own sessions.
    Sessions,
    /// Read one's own sessions.
    Read,
    /// Read metrics and the statistics of all sessions.
    Operator,
    /// Read the content of all sessions.
    OperatorContent,
    /// Change the sessions of all users, and the server.
    OperatorWrite,
}

impl Scope {
    /// Every scope.
    pub const ALL: [Self; 5] = [Self::Sessions, Self::Read, Self::Operator, Self::OperatorContent, Self::OperatorWrite];

    /// Returns its name in settings, tokens and on the wire.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sessions => "sessions",
            Self::Read => "read",
            Self::Operator => "operator",
            Self::OperatorContent => "operator.content",
            Self::OperatorWrite => "operator.write",
        }
    }

    /// Returns the scope of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scope| scope.name() == name)
    }

    /// Returns the scopes that it includes. Writing sessions includes reading them. What operators may do in addition
    /// includes the statistics that all of them read.
    const fn bits(self) -> u8 {
        match self {
            Self::Sessions => 0b0_0011,
            Self::Read => 0b0_0001,
            Self::Operator => 0b0_0100,
            Self::OperatorContent => 0b0_1100,
            Self::OperatorWrite => 0b1_0100,
        }
    }
}

/// A set of scopes.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Scopes(u8);

impl Scopes {
    /// Returns true if the set has this scope.
    #[must_use]
    pub fn allow(self, scope: Scope) -> bool {
        self.0 & scope.bits() == scope.bits()
    }

    /// Returns true if the set contains every scope of the other.
    #[must_use]
    pub fn cover(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns true if the set is empty.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the names, without those that other scopes imply.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        let implied = move |scope: &Scope| {
            Scope::ALL.iter().any(|other| {
                self.allow(*other) && other.bits() != scope.bits() && other.bits() & scope.bits() == scope.bits()
            })
        };
        Scope::ALL.into_iter().filter(move |scope| self.allow(*scope) && !implied(scope)).map(Scope::name)
    }
}

impl FromIterator<Scope> for Scopes {
    fn from_iter<I: IntoIterator<Item = Scope>>(scopes: I) -> Self {
        Self(scopes.into_iter().fold(0, |bits, scope| bits | scope.bits()))
    }
}

impl From<Scope> for Scopes {
    fn from(scope: Scope) -> Self {
        Self(scope.bits())
    }
}

impl fmt::Debug for Scopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.names()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_contains_what_follows_from_it_and_is_named_alone() {
        let table: &[(&[Scope], &[&str], &[Scope])] = &[
            (&[], &[], &[]),
            (&[Scope::Read], &["read"], &[Scope::Read]),
            (&[Scope::Sessions], &["sessions"], &[Scope::Sessions, Scope::Read]),
            (&[Scope::Read, Scope::Sessions], &["sessions"], &[Scope::Sessions, Scope::Read]),
            (&[Scope::Operator], &["operator"], &[Scope::Operator]),
            (&[Scope::OperatorContent], &["operator.content"], &[Scope::Operator, Scope::OperatorContent]),
            (&[Scope::OperatorWrite], &["operator.write"], &[Scope::Operator, Scope::OperatorWrite]),
            (
                &[Scope::OperatorWrite, Scope::OperatorContent],
                &["operator.content", "operator.write"],
                &[Scope::Operator, Scope::OperatorContent, Scope::OperatorWrite],
            ),
            (&[Scope::Operator, Scope::Read], &["read", "operator"], &[Scope::Operator, Scope::Read]),
        ];
        for (given, names, allowed) in table {
            let scopes: Scopes = given.iter().copied().collect();
            assert_eq!(scopes.names().collect::<Vec<_>>(), *names, "{given:?}");
            let found: Vec<Scope> = Scope::ALL.into_iter().filter(|scope| scopes.allow(*scope)).collect();
            assert!(found.len() == allowed.len() && found.iter().all(|scope| allowed.contains(scope)), "{given:?}");
        }
        assert!(Scopes::from(Scope::Sessions).cover(Scope::Read.into()));
        assert!(!Scopes::from(Scope::Read).cover(Scope::Sessions.into()));
    }
}
