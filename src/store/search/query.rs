//! Search queries, and where they match in a text.

use super::words::{self, Kind};
use std::ops::Range;

/// The most terms of a query; further ones are dropped. The cost of a search is the sum over its terms.
pub const TERMS_MAX: usize = 16;

/// The most words of a phrase; further ones are dropped.
const PHRASE_WORDS_MAX: usize = 64;

/// The most bytes of a query that are parsed.
const QUERY_BYTES_MAX: usize = 4096;

/// A query, independent of the store. All of its terms must match, unless [`super::SearchQuery::any`] is set.
///
/// A query consists of words, phrases in `"quotes"`, and prefixes such as `conf*`. A word with punctuation in it
/// (`src/core/mod.rs`, `snake_case`) is a phrase. Nothing else has a special meaning, and every text is a valid query.
///
/// ```
/// use reseed_store::Query;
///
/// let query = Query::parse(r#"port "exact words" conf* src/lib.rs"#);
/// assert_eq!(query.len(), 4);
/// assert!(Query::parse("( * ^ NEAR/3").len() == 1 && Query::parse("…").is_empty());
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Query {
    pub(crate) terms: Vec<Term>,
}

/// Consecutive words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Term {
    pub(crate) words: Vec<String>,
    /// True if the last word is a prefix.
    pub(crate) is_prefix: bool,
}

impl Query {
    /// Parses the text of a query.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut rest = text;
        if text.len() > QUERY_BYTES_MAX {
            let end = (0..=QUERY_BYTES_MAX).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
            // A truncated word would be a different word.
            rest = &text[..text[..end].rfind(char::is_whitespace).unwrap_or(end)];
        }
        let mut terms: Vec<Term> = Vec::new();
        while let Some(start) = rest.find(|c: char| !c.is_whitespace()) {
            rest = &rest[start..];
            let term;
            if let Some(quoted) = rest.strip_prefix(is_quote) {
                (term, rest) = quoted.split_once(is_quote).unwrap_or((quoted, ""));
            } else {
                let end = rest.find(|c: char| c.is_whitespace() || is_quote(c)).unwrap_or(rest.len());
                (term, rest) = rest.split_at(end);
            }
            let after = rest.strip_prefix('*');
            rest = after.unwrap_or(rest);
            let Some(term) = Term::of(term, after.is_some() || term.ends_with('*')) else { continue };
            if !terms.contains(&term) {
                terms.push(term);
            }
            if terms.len() == TERMS_MAX {
                break;
            }
        }
        Self { terms }
    }

    /// Returns the number of terms.
    #[must_use]
    pub fn len(&self) -> usize {
        self.terms.len()
    }

    /// Returns true if the text had no words; nothing is then found.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// Returns for each term the position in the text where it first matches.
    pub(super) fn places(&self, text: &str) -> Vec<Option<Range<usize>>> {
        let mut searches: Vec<Search<'_>> = self.terms.iter().map(Search::new).collect();
        let mut open = searches.len();
        words::each(text, |word, place, _| {
            for search in searches.iter_mut().filter(|search| search.found.is_none()) {
                search.step(word, &place);
                open -= usize::from(search.found.is_some());
            }
            open > 0
        });
        searches.into_iter().map(|search| search.found).collect()
    }
}

fn is_quote(c: char) -> bool {
    matches!(c, '"' | '“' | '”')
}

impl Term {
    fn of(text: &str, is_prefix: bool) -> Option<Self> {
        let (mut found, mut last) = (Vec::new(), Kind::Plain);
        words::each(text, |word, _, kind| {
            found.push(word.to_owned());
            last = kind;
            found.len() < PHRASE_WORDS_MAX
        });
        // The run of characters may continue in the text, so the word that is indexed only at the end of a run is not
        // required.
        match last {
            Kind::Last => drop(found.pop()),
            Kind::Alone | Kind::Plain | Kind::Pair => {}
        }
        let is_prefix = last == Kind::Alone || last == Kind::Plain && is_prefix;
        (!found.is_empty()).then_some(Self { words: found, is_prefix })
    }
}

/// An incremental search for one term in the words of a text.
struct Search<'a> {
    term: &'a Term,
    /// Partial matches that end at the previous word: the number of matched words, and the position of the first.
    open: Vec<(usize, usize)>,
    found: Option<Range<usize>>,
}

impl<'a> Search<'a> {
    fn new(term: &'a Term) -> Self {
        Self { term, open: Vec::new(), found: None }
    }

    fn step(&mut self, word: &str, place: &Range<usize>) {
        let Term { words, is_prefix } = self.term;
        let fits = |at: usize| match words.get(at) {
            Some(want) if *is_prefix && at + 1 == words.len() => word.starts_with(want.as_str()),
            Some(want) => word == want,
            None => false,
        };
        if self.open.is_empty() && !fits(0) {
            return;
        }
        self.open.push((0, place.start));
        self.open.retain_mut(|(at, _)| {
            let fits = fits(*at);
            *at += 1;
            fits
        });
        let done = self.open.iter().find(|(at, _)| *at == words.len());
        self.found = done.map(|(_, start)| *start..place.end);
    }
}

#[cfg(test)]
mod tests {
    use super::Query;

    fn terms(text: &str) -> String {
        let terms = Query::parse(text).terms.into_iter();
        terms.map(|term| term.words.join("+") + if term.is_prefix { "*" } else { "" }).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn the_text_of_a_query_is_read() {
        let cases = [
            ("Two words two", "two words"),
            (r#"a "b c"d*"#, "a b+c d*"),
            (r#""open phrase"#, "open+phrase"),
            (r#""the start"* "#, "the+start*"),
            ("src/core/mod.rs snake_case*", "src+core+mod+rs snake+case*"),
            ("東京都 京 晴れ*", "東京+京都 京* 晴れ"),
            ("“在GitHub上找”", "在+github+上找"),
            ("* ** \"\" - () ^", ""),
            ("NEAR(a b, 3) col:x AND NOT", "near+a b 3 col+x and not"),
            ("a\0b", "a+b"),
        ];
        for (text, want) in cases {
            assert_eq!(terms(text), want, "{text}");
        }
        let many: String = (0..100).map(|n| format!("w{n} ")).collect();
        assert_eq!(Query::parse(&many).len(), 16);
        assert_eq!(Query::parse(&"é".repeat(16_384)).terms[0].words.len(), 32);
    }

    #[test]
    fn a_term_is_found_where_it_is() {
        let text = "Ports: port 80, the exact words; in src/core/mod.rs. 東京都は晴れ。";
        let cases = [
            ("port", "port"),
            ("exact-words", "exact words"),
            ("core/mod*", "core/mod"),
            ("wor*", "words"),
            ("port*", "Ports"),
            ("京都", "京都"),
            ("都", "都は"),
            ("晴れ", "晴れ"),
            ("れ", "れ"),
        ];
        for (query, want) in cases {
            let places = Query::parse(query).places(text);
            assert_eq!(places[0].clone().map(|place| &text[place]), Some(want), "{query}");
        }
        for query in ["por", "\"words exact\"", "\"port the\"", "東晴", "mod.r"] {
            assert!(Query::parse(query).places(text).contains(&None), "{query}");
        }
        assert_eq!(Query::parse("a-a-b").places("a a a b")[0], Some(2..7));
    }
}
