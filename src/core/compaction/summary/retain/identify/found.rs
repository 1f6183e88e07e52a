//! An identifier in a sentence, and its kind.

/// The kind of an identifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum IdentifierKind {
    /// A file, a directory, or another name with dots or slashes.
    Path,
    /// The address of a page or service.
    Url,
    /// An email address.
    Email,
    /// A number with its unit, a date, a version, an amount of money.
    Number,
    /// Text in quotation marks.
    Quoted,
    /// The name of a person, an animal or a thing.
    Name,
    /// A name in code, or anything in backticks.
    Symbol,
    /// A hash, an order number, a mixture of letters and digits.
    Id,
    /// Something still to be done. Compared by its words.
    Task,
}

/// An identifier in a sentence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Found {
    /// Its kind.
    pub(crate) kind: IdentifierKind,
    /// The byte offset of its start in the sentence.
    pub(crate) start: usize,
    /// The byte offset after its end.
    pub(crate) end: usize,
}
