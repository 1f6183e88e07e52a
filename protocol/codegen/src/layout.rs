//! Prints one TypeScript declaration: each field of an object with doc comments on a line of its own, and so each
//! member of a union that contains such objects or is too long for one line.
//!
//! Reads the declaration once, token by token, as the derive writes it: fields end with `,`, and doc comments stand
//! before a field.

/// The length of a declaration above which it is split into lines.
const COLUMNS_MAX: usize = 110;

/// Prints `type Name = …;`, with its doc comment, as an exported declaration.
pub(crate) fn declaration(docs: Option<&str>, text: &str) -> String {
    let docs = docs.map(|docs| comment(&comment_text(docs), 0)).unwrap_or_default();
    let text = text.trim_start_matches("type ").trim_end_matches(';');
    let (name, value) = text.split_once(" = ").expect("a declaration has a name and a value");
    let tokens = tokens(value);
    let is_object = tokens[0] == "{" && length_inside(&tokens[1..]) + 2 == tokens.len();
    let columns = format!("export type {name} = {value};").len();
    let is_split = tokens.iter().any(|token| is_docs(token)) || columns > COLUMNS_MAX;
    let mut printer = Printer { out: String::new(), open: Vec::new(), is_split };
    if is_object {
        printer.out = format!("{docs}export interface {name} ");
    } else {
        printer.out = format!("{docs}export type {name} =");
        if is_split && is_union(&tokens) { printer.open_union() } else { printer.out.push(' ') }
    }
    for (place, token) in tokens.iter().enumerate() {
        printer.print(token, &tokens[place + 1..], is_object);
    }
    printer.out + if is_object { "\n" } else { ";\n" }
}

/// Prints a doc comment, indented by `indent` columns.
fn comment(text: &str, indent: usize) -> String {
    let pad = " ".repeat(indent);
    if text.contains('\n') {
        let body: String = text.lines().map(|line| format!("{pad} * {line}\n")).collect();
        format!("{pad}/**\n{body}{pad} */\n")
    } else {
        format!("{pad}/** {text} */\n")
    }
}

/// A bracket that is open, or the outermost union.
#[derive(PartialEq)]
enum Open {
    /// An object with a field per line.
    Lines,
    /// An object on one line.
    Line,
    /// A union with a member per line.
    Union,
    /// Type arguments, or a group.
    Other,
}

struct Printer {
    out: String,
    open: Vec<Open>,
    /// True if the declaration takes several lines.
    is_split: bool,
}

impl Printer {
    fn print(&mut self, token: &str, rest: &[&str], is_object: bool) {
        let next = rest.first().copied().unwrap_or_default();
        match token {
            "{" => {
                let has_docs = rest[..length_inside(rest)].iter().any(|token| is_docs(token));
                let is_outermost = is_object && self.open.is_empty();
                self.open.push(if has_docs || is_outermost { Open::Lines } else { Open::Line });
                self.out.push('{');
                self.between_fields();
            }
            "}" => {
                self.out.truncate(self.out.trim_end().len());
                let closed = self.open.pop();
                if closed == Some(Open::Lines) {
                    self.new_line(0)
                } else {
                    self.out.push(' ')
                }
                self.out.push('}');
            }
            "(" if self.is_split => {
                self.out.push('(');
                self.open_union();
            }
            "<" | "(" => {
                self.open.push(Open::Other);
                self.out.push_str(token);
            }
            ">" | ")" => {
                if self.open.pop() == Some(Open::Union) {
                    self.new_line(0);
                }
                self.out.push_str(token);
            }
            "," if self.open.last() == Some(&Open::Other) => self.out.push_str(", "),
            "," if next == "}" && self.open.last() == Some(&Open::Line) => {}
            "," => {
                self.out.push(';');
                self.between_fields();
            }
            "|" if self.open.last() == Some(&Open::Union) => self.begin_member(),
            "|" | "&" => self.out.push_str(&format!(" {token} ")),
            ":" => self.out.push_str(": "),
            docs if is_docs(docs) => {
                let indent = self.indent();
                self.out.push_str(comment(&comment_text(docs), indent).trim_start());
                self.out.push_str(&" ".repeat(indent));
            }
            name if matches!(next, ":" | "?") => self.out.push_str(name.trim_matches('"')),
            other => self.out.push_str(other),
        }
    }

    fn open_union(&mut self) {
        self.open.push(Open::Union);
        self.begin_member();
    }

    fn begin_member(&mut self) {
        self.new_line(2);
        self.out.push_str("| ");
    }

    fn indent(&self) -> usize {
        let columns = |open: &Open| match open {
            Open::Lines => 2,
            Open::Union => 4,
            Open::Line | Open::Other => 0,
        };
        self.open.iter().map(columns).sum()
    }

    fn new_line(&mut self, columns_less: usize) {
        self.out.push('\n');
        self.out.push_str(&" ".repeat(self.indent() - columns_less));
    }

    fn between_fields(&mut self) {
        if self.open.last() == Some(&Open::Lines) { self.new_line(0) } else { self.out.push(' ') }
    }
}

/// Returns the number of tokens before the one that closes the bracket in front of them.
fn length_inside(tokens: &[&str]) -> usize {
    let mut depth = 1;
    let closes = |token: &&str| {
        match *token {
            "{" | "(" | "<" => depth += 1,
            "}" | ")" | ">" => depth -= 1,
            _ => {}
        }
        depth == 0
    };
    tokens.iter().position(closes).expect("a bracket is closed")
}

/// Returns true if a `|` of these tokens is in no bracket.
fn is_union(tokens: &[&str]) -> bool {
    let mut rest = tokens;
    while let Some((token, after)) = rest.split_first() {
        rest = match *token {
            "|" => return true,
            "{" | "(" | "<" => &after[length_inside(after) + 1..],
            _ => after,
        };
    }
    false
}

fn is_docs(token: &str) -> bool {
    token.starts_with("/**")
}

/// Splits a type into names, literals, doc comments and single signs.
fn tokens(text: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let end = match first {
            '/' => rest.find("*/").map(|end| end + 2),
            '"' => rest[1..].find('"').map(|end| end + 2),
            _ if is_of_name(first) => rest.find(|c: char| !is_of_name(c)),
            _ => Some(first.len_utf8()),
        };
        let (token, after) = rest.split_at(end.unwrap_or(rest.len()));
        tokens.push(token);
        rest = after.trim_start();
    }
    tokens
}

pub(crate) fn is_of_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Returns the text of a doc comment, without its stars.
fn comment_text(comment: &str) -> String {
    let comment = comment.trim().trim_start_matches("/**").trim_end_matches("*/");
    let lines = comment.lines().map(|line| line.trim().trim_start_matches('*').trim());
    lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::declaration;

    #[test]
    fn a_declaration_is_laid_out_by_its_shape() {
        let table = [
            ("type A = string;", "export type A = string;\n"),
            ("type A<B, C> = B | Partial<C>;", "export type A<B, C> = B | Partial<C>;\n"),
            (r#"type A = "x" | "y";"#, "export type A = \"x\" | \"y\";\n"),
            (
                "type A = { \n/**\n * One.\n */\nb?: Array<C>, };",
                "export interface A {\n  /** One. */\n  b?: Array<C>;\n}\n",
            ),
            (
                "type A = { \"type\": \"x\", \n/**\n * One.\n */\nb: B, } | { \"type\": \"y\" } & C;",
                "export type A =\n  | {\n      type: \"x\";\n      /** One. */\n      b: B;\n    }\n  | { type: \"y\" } & C;\n",
            ),
        ];
        for (text, expected) in table {
            assert_eq!(declaration(None, text), expected, "{text}");
        }
    }
}
