//! Formats one TypeScript declaration: one field per line with its doc comment above, the members of a union on
//! separate lines.
//!
//! Parses the subset of TypeScript that declarations use: objects, unions, intersections, literals, names with
//! arguments. Anything else is an error in the types and fails the test.

/// The line width above which a union is split into lines.
const COLUMNS_MAX: usize = 110;

/// Formats `type Name = …;`, with its doc comment, as an exported declaration.
pub(crate) fn declaration(docs: Option<&str>, text: &str) -> String {
    let tokens = tokens(text);
    let mut reader = Reader { tokens: &tokens, at: 0 };
    reader.expect("type");
    let name = flat(&reader.primary());
    reader.expect("=");
    let node = reader.union();
    reader.expect(";");
    let mut out = docs.map(|docs| comment(&comment_text(docs), 0)).unwrap_or_default();
    match &node {
        Node::Object(fields) => {
            out.push_str(&format!("export interface {name} "));
            out.push_str(&lines(fields, 0));
            out.push('\n');
        }
        _ => {
            let flat = format!("export type {name} = {};", flat(&node));
            match &node {
                Node::Union(members) if flat.len() > COLUMNS_MAX || members.iter().any(has_docs) => {
                    out.push_str(&format!("export type {name} ="));
                    for member in members {
                        out.push_str("\n  | ");
                        out.push_str(&if has_docs(member) { broken(member, 4) } else { self::flat(member) });
                    }
                    out.push_str(";\n");
                }
                node if has_docs(node) || flat.len() > COLUMNS_MAX => {
                    out.push_str(&format!("export type {name} = {};\n", broken(node, 0)));
                }
                _ => {
                    out.push_str(&flat);
                    out.push('\n');
                }
            }
        }
    }
    out
}

/// Formats a doc comment, indented by `indent` columns.
pub(crate) fn comment(text: &str, indent: usize) -> String {
    let pad = " ".repeat(indent);
    if text.contains('\n') {
        let body: String = text.lines().map(|line| format!("{pad} * {line}\n")).collect();
        format!("{pad}/**\n{body}{pad} */\n")
    } else {
        format!("{pad}/** {text} */\n")
    }
}

#[derive(Debug)]
enum Node {
    /// A literal, or a name with its arguments.
    Leaf(String),
    Object(Vec<Field>),
    Union(Vec<Node>),
    Intersection(Vec<Node>),
}

#[derive(Debug)]
struct Field {
    docs: Option<String>,
    /// With the `?` of an optional field.
    name: String,
    value: Node,
}

fn has_docs(node: &Node) -> bool {
    match node {
        Node::Leaf(_) => false,
        Node::Object(fields) => fields.iter().any(|field| field.docs.is_some() || has_docs(&field.value)),
        Node::Union(members) | Node::Intersection(members) => members.iter().any(has_docs),
    }
}

fn flat(node: &Node) -> String {
    match node {
        Node::Leaf(text) => text.clone(),
        Node::Object(fields) => {
            let fields: Vec<String> =
                fields.iter().map(|field| format!("{}: {}", field.name, flat(&field.value))).collect();
            format!("{{ {} }}", fields.join("; "))
        }
        Node::Union(members) => members.iter().map(flat).collect::<Vec<_>>().join(" | "),
        Node::Intersection(members) => {
            members.iter().map(|member| grouped(member, flat(member))).collect::<Vec<_>>().join(" & ")
        }
    }
}

fn broken(node: &Node, indent: usize) -> String {
    match node {
        Node::Leaf(text) => text.clone(),
        Node::Object(fields) => lines(fields, indent),
        Node::Union(members) => {
            let pad = " ".repeat(indent + 2);
            members.iter().map(|member| format!("\n{pad}| {}", broken_or_flat(member, indent + 4))).collect()
        }
        Node::Intersection(members) => {
            let members: Vec<String> = members
                .iter()
                .map(|member| {
                    let text = broken_or_flat(member, indent);
                    let open = matches!(member, Node::Union(_)) && text.contains('\n');
                    if open { format!("({text}\n{})", " ".repeat(indent)) } else { grouped(member, text) }
                })
                .collect();
            members.join(" & ")
        }
    }
}

fn broken_or_flat(node: &Node, indent: usize) -> String {
    let text = flat(node);
    if has_docs(node) || text.len() + indent > COLUMNS_MAX { broken(node, indent) } else { text }
}

fn grouped(node: &Node, text: String) -> String {
    if matches!(node, Node::Union(_)) { format!("({text})") } else { text }
}

fn lines(fields: &[Field], indent: usize) -> String {
    let pad = " ".repeat(indent + 2);
    let mut out = "{\n".to_owned();
    for field in fields {
        if let Some(docs) = &field.docs {
            out.push_str(&comment(docs, indent + 2));
        }
        out.push_str(&format!("{pad}{}: {};\n", field.name, broken_or_flat(&field.value, indent + 2)));
    }
    out.push_str(&" ".repeat(indent));
    out.push('}');
    out
}

#[derive(Debug, Clone, PartialEq)]
enum Token {
    Docs(String),
    /// A string literal, with its quotes.
    Literal(String),
    Name(String),
    Sign(char),
}

impl Token {
    fn text(&self) -> String {
        match self {
            Self::Docs(text) | Self::Literal(text) | Self::Name(text) => text.clone(),
            Self::Sign(sign) => sign.to_string(),
        }
    }
}

struct Reader<'t> {
    tokens: &'t [Token],
    at: usize,
}

impl Reader<'_> {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at)
    }

    fn next(&mut self) -> Token {
        let token = self.peek().expect("a declaration ends with `;`").clone();
        self.at += 1;
        token
    }

    fn take(&mut self, sign: char) -> bool {
        let found = self.peek() == Some(&Token::Sign(sign));
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, text: &str) {
        let token = self.next();
        assert_eq!(token.text(), text, "at token {} of a declaration", self.at);
    }

    fn union(&mut self) -> Node {
        self.take('|');
        let mut members = vec![self.intersection()];
        while self.take('|') {
            members.push(self.intersection());
        }
        one_or(members, Node::Union)
    }

    fn intersection(&mut self) -> Node {
        let mut members = vec![self.primary()];
        while self.take('&') {
            members.push(self.primary());
        }
        one_or(members, Node::Intersection)
    }

    fn primary(&mut self) -> Node {
        if self.take('(') {
            let node = self.union();
            self.expect(")");
            return node;
        }
        if self.take('{') {
            return self.object();
        }
        let mut text = self.next().text();
        if self.take('<') {
            let mut arguments = vec![flat(&self.union())];
            while self.take(',') {
                arguments.push(flat(&self.union()));
            }
            self.expect(">");
            text = format!("{text}<{}>", arguments.join(", "));
        }
        Node::Leaf(text)
    }

    fn object(&mut self) -> Node {
        let mut fields = Vec::new();
        while !self.take('}') {
            let mut docs = None;
            let mut token = self.next();
            if let Token::Docs(text) = token {
                docs = Some(text);
                token = self.next();
            }
            let mut name = token.text().trim_matches('"').to_owned();
            if self.take('?') {
                name.push('?');
            }
            self.expect(":");
            let value = self.union();
            self.take(',');
            fields.push(Field { docs, name, value });
        }
        Node::Object(fields)
    }
}

fn one_or(mut members: Vec<Node>, many: fn(Vec<Node>) -> Node) -> Node {
    if members.len() == 1 { members.remove(0) } else { many(members) }
}

fn tokens(text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let length = if rest.starts_with("/**") {
            let length = rest.find("*/").expect("a comment ends") + 2;
            tokens.push(Token::Docs(comment_text(&rest[..length])));
            length
        } else if first == '"' {
            let length = rest[1..].find('"').expect("a literal ends") + 2;
            tokens.push(Token::Literal(rest[..length].to_owned()));
            length
        } else if first.is_alphanumeric() || first == '_' {
            let length = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
            tokens.push(Token::Name(rest[..length].to_owned()));
            length
        } else {
            tokens.push(Token::Sign(first));
            first.len_utf8()
        };
        rest = rest[length..].trim_start();
    }
    tokens
}

/// Returns the text of a doc comment, without its stars.
fn comment_text(comment: &str) -> String {
    let lines = comment.lines().map(|line| {
        let line = line.trim();
        let line = line.strip_prefix("/**").unwrap_or(line);
        let line = line.strip_suffix("*/").unwrap_or(line);
        line.trim().trim_start_matches("* ").trim_matches('*').trim().to_owned()
    });
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
