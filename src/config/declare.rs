//! The macro behind [`super::declared`]: one line declares a setting, and everything else follows from that line.

/// The declaration of a setting, without its value. It is printed in `.env.example`, in a table and in the help.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Declared {
    /// Its section of [`super::Settings`].
    pub section: &'static str,
    /// A sentence about the section.
    pub section_about: String,
    /// The environment variable.
    pub variable: String,
    /// Its description, in sentences.
    pub about: String,
    /// The default; empty for none.
    pub default: &'static str,
    /// Its unit; empty if it is not a number.
    pub unit: &'static str,
    /// The allowed values.
    pub allowed: String,
    /// True if its value must never be shown.
    pub secret: bool,
    /// True if a running server applies a new value on SIGHUP.
    pub reloaded: bool,
}

/// Returns the environment variable of a field: its name in upper case.
pub(super) fn variable(field: &str) -> String {
    field.to_ascii_uppercase()
}

/// Joins the lines of a doc comment into running text.
pub(super) fn sentences(lines: &[&str]) -> String {
    lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ")
}

/// Declares settings by section. A field has the name of its environment variable in lower case, so that one search
/// finds the declaration and every use. The form is `field: Type = "default", rule;`, and an empty default means none.
///
/// A section may end with `fixed { field: Type = value; }`. These are constants that no variable sets and that tests
/// lower.
///
/// The macro generates a struct per section, [`super::Settings`] containing them, and the list of [`Declared`].
///
/// A rule may need the available strategies, which are bound to the name given first.
macro_rules! settings {
    ($strategies:ident; $(
        $(#[doc = $about:literal])+
        $section:ident: $Section:ident {
            $( $(#[doc = $doc:literal])+ $field:ident: $Type:ty = $default:literal, $rule:expr; )+
            $( fixed { $( $(#[doc = $why:literal])+ $fixed:ident: $Fixed:ty = $value:expr; )+ } )?
        }
    )+) => {
        $(
            $(#[doc = $about])+
            #[derive(Debug, Clone)]
            pub struct $Section {
                $( $(#[doc = $doc])+ pub $field: $Type, )+
                $( $( $(#[doc = $why])+ pub $fixed: $Fixed, )+ )?
            }

            impl Default for $Section {
                fn default() -> Self {
                    Self::read(&Given::default(), &Strategies::default(), &mut Vec::new())
                        .expect("defaults are allowed: a test reads them all")
                }
            }

            impl $Section {
                const ABOUT: &'static [&'static str] = &[$($about),+];

                /// Reads its settings; `None` if one of them is invalid.
                fn read(given: &Given, $strategies: &Strategies, faults: &mut Vec<String>) -> Option<Self> {
                    let _ = $strategies;
                    // All settings are read before returning, so that every error is reported at once.
                    $( let $field = $rule.read(stringify!($field), given.$field.as_deref(), $default, faults); )+
                    Some(Self { $( $field: $field?, )+ $( $( $fixed: $value, )+ )? })
                }
            }
        )+

        /// All settings, by section.
        #[derive(Debug, Clone, Default)]
        pub struct Settings {
            $( $(#[doc = $about])+ pub $section: $Section, )+
            /// Warnings about settings, one sentence each, for the log at startup.
            pub warnings: Vec<String>,
            /// The available strategies.
            pub strategies: Strategies,
            /// Other variables.
            pub variables: Variables,
            /// Distinguishes these settings from others.
            pub fingerprints: Fingerprints,
        }

        /// The environment as envy returns it, with a string for each field.
        #[derive(Debug, Default, serde::Deserialize)]
        pub(super) struct Given { $( $( $field: Option<String>, )+ )+ }

        impl Settings {
            /// Reads every section; `None` if a setting is invalid.
            pub(super) fn read(given: &Given, strategies: Strategies, faults: &mut Vec<String>) -> Option<Self> {
                $( let $section = $Section::read(given, &strategies, faults); )+
                Some(Self {
                    $( $section: $section?, )+
                    warnings: Vec::new(),
                    strategies,
                    variables: Variables::default(),
                    fingerprints: Fingerprints::default(),
                })
            }
        }

        impl Settings {
            /// The names of the constants that tests lower.
            #[doc(hidden)]
            pub const FIXED: &'static [&'static str] = &[$( $( $( stringify!($fixed), )+ )? )+];

            /// Gives such a constant another value. Returns false if no constant has this name, or if it cannot have
            /// the value.
            pub(super) fn fix(&mut self, name: &str, value: &str) -> bool {
                match name {
                    $( $( $( stringify!($fixed) => {
                        value.parse::<$Fixed>().map(|value| self.$section.$fixed = value).is_ok()
                    } )+ )? )+
                    _ => false,
                }
            }
        }

        /// Returns every setting in the order of declaration.
        #[must_use]
        pub fn declared() -> Vec<Declared> {
            let $strategies = &Strategies::default();
            vec![$( $( {
                let rule: rules::Rule<$Type> = $rule;
                Declared {
                    section: stringify!($section),
                    section_about: sentences($Section::ABOUT),
                    variable: variable(stringify!($field)),
                    about: sentences(&[$($doc),+]),
                    default: $default,
                    unit: rule.unit,
                    allowed: rule.allowed,
                    secret: rule.secret,
                    reloaded: rule.reloaded,
                }
            }, )+ )+]
        }
    };
}

pub(super) use settings;
