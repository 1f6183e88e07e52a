//! Bundles the page's modules into one script and its style sheets into one, so that the page loads in a few requests.
//!
//! No build tool is needed, because the page's own modules use only these forms, each on one line: `import { a, b as c
//! } from "./x.js";`, `export { a } from "./x.js";`, and `export` before a `const`, `function` or `class`. Any other
//! form at the start of a line is an error, which a test finds.

use std::fmt::Write as _;

/// Bundles a module and everything it imports: each in its own function, in dependency order.
///
/// # Errors
/// The module or the line that cannot be bundled.
pub(super) fn script(modules: &[(&str, &str)], main: &str) -> Result<String, String> {
    let mut bundle = Bundle { modules, out: String::new(), done: Vec::new(), open: Vec::new() };
    bundle.add(main)?;
    Ok(bundle.out)
}

struct Bundle<'a> {
    modules: &'a [(&'a str, &'a str)],
    out: String,
    done: Vec<String>,
    /// The modules that are being read: the chain of importers that leads to the current one.
    open: Vec<String>,
}

impl Bundle<'_> {
    fn add(&mut self, name: &str) -> Result<(), String> {
        if self.done.iter().any(|done| done == name) {
            return Ok(());
        }
        if self.open.iter().any(|open| open == name) {
            return Err(format!("`{name}` imports itself through other modules"));
        }
        let Some((_, text)) = self.modules.iter().find(|(known, _)| *known == name) else {
            return Err(format!("`{name}` is not a module of the page"));
        };
        self.open.push(name.to_owned());
        let mut body = String::new();
        let mut exports = Vec::new();
        for line in without_comments(text) {
            let fault = || format!("`{name}` has the line `{line}`");
            if let Some(rest) = line.strip_prefix("import ") {
                let (names, from) = names_from(rest).ok_or_else(fault)?;
                self.add(from)?;
                let names: Vec<String> = names.iter().map(|(outer, inner)| pair(outer, inner)).collect();
                writeln!(body, "const {{{}}}={};", names.join(","), variable(from)).expect("a string takes all");
            } else if let Some(rest) = line.strip_prefix("export ").filter(|rest| rest.starts_with('{')) {
                let (names, from) = names_from(rest).ok_or_else(fault)?;
                self.add(from)?;
                exports.extend(names.iter().map(|(inner, outer)| format!("{outer}:{}.{inner}", variable(from))));
            } else if let Some(rest) = line.strip_prefix("export ") {
                exports.push(declared(rest).ok_or_else(fault)?.to_owned());
                body.push_str(rest);
                body.push('\n');
            } else {
                body.push_str(line);
                body.push('\n');
            }
        }
        let variable = variable(name);
        writeln!(self.out, "const {variable}=(()=>{{\n{body}return{{{}}};\n}})();", exports.join(","))
            .expect("a string takes all");
        self.open.pop();
        self.done.push(name.to_owned());
        Ok(())
    }
}

/// Parses `{ a, b as c } from "./x.js";` into pairs of names and the module.
fn names_from(text: &str) -> Option<(Vec<(String, String)>, &str)> {
    let (names, from) = text.strip_prefix('{')?.split_once("} from ")?;
    let from = from.strip_prefix("\"./")?.strip_suffix("\";")?;
    let names = names.split(',').map(str::trim).filter(|name| !name.is_empty());
    let pairs = names.map(|name| match name.split_once(" as ") {
        Some((outer, inner)) => (outer.to_owned(), inner.to_owned()),
        None => (name.to_owned(), name.to_owned()),
    });
    Some((pairs.collect(), from))
}

fn pair(outer: &str, inner: &str) -> String {
    if outer == inner { outer.to_owned() } else { format!("{outer}:{inner}") }
}

/// Returns the name that a `const`, `function` or `class` declares.
fn declared(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("async ").unwrap_or(line);
    let rest = ["const ", "function ", "class "].iter().find_map(|word| rest.strip_prefix(word))?;
    let end = rest.find(|next: char| !next.is_ascii_alphanumeric() && next != '_').unwrap_or(rest.len());
    (end > 0).then(|| &rest[..end])
}

/// Returns the variable that holds a module's exports.
fn variable(module: &str) -> String {
    format!("${}", module.trim_end_matches(".js").replace('-', "_"))
}

/// Returns the lines that are not comments. Comments are on lines of their own, and no browser needs them.
fn without_comments(text: &str) -> Vec<&str> {
    let mut lines = Vec::new();
    let mut inside = false;
    for line in text.lines() {
        let trimmed = line.trim();
        if inside {
            inside = !trimmed.ends_with("*/");
        } else if trimmed.starts_with("/*") && !trimmed.contains("*/") {
            inside = true;
        } else if !(trimmed.is_empty() || trimmed.starts_with("//") || is_comment(trimmed)) {
            lines.push(line);
        }
    }
    lines
}

/// Returns true if the line is only a comment. A type annotation before an expression is not.
fn is_comment(line: &str) -> bool {
    line.starts_with("/*") && line.find("*/") == Some(line.len().saturating_sub(2))
}

/// Joins style sheets.
pub(super) fn styles<'a>(sheets: impl Iterator<Item = &'a str>) -> String {
    sheets.flat_map(without_comments).fold(String::new(), |text, line| text + line + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_joined_in_the_order_of_their_imports() {
        let modules = [
            (
                "main.js",
                "/** Head.\n * More.\n */\nimport { a, b as c } from \"./x-y.js\";\nimport { d } from \"./z.js\";\n// So.\na(c, d);",
            ),
            (
                "x-y.js",
                "import { d } from \"./z.js\";\nexport { d as e } from \"./z.js\";\nexport const b = 1;\nexport async function a() {\n  /** @type {X} */ (d)();\n}",
            ),
            ("z.js", "/** Short. */\nexport class d {}\n"),
        ];
        let expected = "\
const $z=(()=>{
class d {}
return{d};
})();
const $x_y=(()=>{
const {d}=$z;
const b = 1;
async function a() {
  /** @type {X} */ (d)();
}
return{e:$z.d,b,a};
})();
const $main=(()=>{
const {a,b:c}=$x_y;
const {d}=$z;
a(c, d);
return{};
})();
";
        assert_eq!(script(&modules, "main.js").as_deref(), Ok(expected));
    }

    #[test]
    fn what_cannot_be_joined_is_named() {
        let form = |line: &str| format!("`a.js` has the line `{line}`");
        let table = [
            ("import { x } from \"./b.js\";", "`b.js` is not a module of the page".to_owned()),
            ("import { x } from \"./a.js\";", "`a.js` imports itself through other modules".to_owned()),
            ("import x from \"./a.js\";", form("import x from \"./a.js\";")),
            ("import { x } from \"https://b\";", form("import { x } from \"https://b\";")),
            ("export default 1;", form("export default 1;")),
            ("export let x = 1;", form("export let x = 1;")),
            ("export { x };", form("export { x };")),
        ];
        for (text, fault) in table {
            assert_eq!(script(&[("a.js", text)], "a.js"), Err(fault), "{text}");
        }
    }

    #[test]
    fn sheets_are_joined_without_comments() {
        let sheets = ["/* Head. */\n\na { b: c; }\n", "/* Two\n   lines. */\nd { e: f; /* g */ }"];
        assert_eq!(styles(sheets.into_iter()), "a { b: c; }\nd { e: f; /* g */ }\n");
    }
}
