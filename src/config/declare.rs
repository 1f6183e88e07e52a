//! The macro behind [`super::declared`]: one line declares a setting, and everything else follows from that line.

/// What is known of a setting without its value; printed as `.env.example`, as a table and as help.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Declared {
    /// The part of [`super::Settings`] that it belongs to.
    pub section: &'static str,
    /// What that part is about, a sentence.
    pub section_about: String,
    /// The environment variable.
    pub variable: String,
    /// What it does, in sentences.
    pub about: String,
    /// The value it has where the variable is not set; empty for none.
    pub default: &'static str,
    /// What it counts; empty where it is no number.
    pub unit: &'static str,
    /// Which values it takes.
    pub allowed: String,
    /// Whether its value must never be shown.
    pub secret: bool,
}

/// The environment variable of a field: its name in upper case.
pub(super) fn variable(field: &str) -> String {
    field.to_ascii_uppercase()
}

/// The lines of a doc comment as running text.
pub(super) fn sentences(lines: &[&str]) -> String {
    lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ")
}

/// Declares settings by section. A field is named as its environment variable, in lower case, so that one search
/// finds the declaration and every use. `field: Type = "default", rule;`, where an empty default means none.
///
/// Makes a struct a section, [`super::Settings`] over them, and the list of [`Declared`].
///
/// A rule may need the strategies there are, whose name comes first.
macro_rules! settings {
    ($strategies:ident; $(
        $(#[doc = $about:literal])+
        $section:ident: $Section:ident {
            $( $(#[doc = $doc:literal])+ $field:ident: $Type:ty = $default:literal, $rule:expr; )+
        }
    )+) => {
        $(
            $(#[doc = $about])+
            #[derive(Debug, Clone)]
            pub struct $Section { $( $(#[doc = $doc])+ pub $field: $Type, )+ }

            impl Default for $Section {
                fn default() -> Self {
                    Self::read(&Given::default(), &Strategies::default(), &mut Vec::new())
                        .expect("defaults are allowed: a test reads them all")
                }
            }

            impl $Section {
                const ABOUT: &'static [&'static str] = &[$($about),+];

                /// Reads its settings; `None` where one of them is at fault.
                fn read(given: &Given, $strategies: &Strategies, faults: &mut Vec<String>) -> Option<Self> {
                    let _ = $strategies;
                    // All are read before any is asked for, so that every fault is told at once.
                    $( let $field = $rule.read(stringify!($field), given.$field.as_deref(), $default, faults); )+
                    Some(Self { $( $field: $field?, )+ })
                }
            }
        )+

        /// Every setting, by the part of the server that it is for.
        #[derive(Debug, Clone, Default)]
        pub struct Settings {
            $( $(#[doc = $about])+ pub $section: $Section, )+
            /// What looks wrong but stops nothing, one sentence each; for the log at start.
            pub warnings: Vec<String>,
            /// The strategies there are.
            pub strategies: Strategies,
            /// What else was set.
            pub variables: Variables,
        }

        /// The environment as envy gives it: texts by field.
        #[derive(Debug, Default, serde::Deserialize)]
        pub(super) struct Given { $( $( $field: Option<String>, )+ )+ }

        impl Settings {
            /// Reads every section; `None` where a setting is at fault.
            pub(super) fn read(given: &Given, strategies: Strategies, faults: &mut Vec<String>) -> Option<Self> {
                $( let $section = $Section::read(given, &strategies, faults); )+
                Some(Self { $( $section: $section?, )+ warnings: Vec::new(), strategies, variables: Variables::default() })
            }
        }

        /// Every setting in the order of its declaration.
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
                }
            }, )+ )+]
        }
    };
}

pub(super) use settings;
