//! Bundles the page's modules into one script and its style sheets into one, so that the page loads in a few requests.
//!
//! No build tool is needed, because the page's own modules use only these forms, each on one line: `import { a, b as c
//! } from "./x.js";`, `export { a } from "./x.js";`, and `export` before a `const`, `function` or `class`. Any other
//! form at the start of a line is an error, which a test finds. A module in a folder imports those above it by
//! `"../x.js"`.
//!
//! `await import("./x.js")` loads a module lazily, when it is first needed. Such a module becomes a script of its own,
//! with what it imports and the main script does not have. It gets the other modules from the main script.

use std::{borrow::Cow, fmt::Write as _};

/// Loads a lazy script once. After a failure, the next call tries again at another address, because browsers remember
/// that an address has failed.
const LOADER: &str = "\
const $loaded=new Map();
let $failed=0;
const $load=(file,shared)=>{
const from=$failed?`${file}?${$failed}`:file;
const retry=(error)=>{$loaded.delete(file);$failed+=1;throw error;};
if(!$loaded.has(file))$loaded.set(file,import(from).then((script)=>script.load(shared)).catch(retry));
return $loaded.get(file);
};
";

/// The scripts of the page.
#[derive(Debug, PartialEq)]
pub(super) struct Scripts {
    /// The main script. It names each lazy script as `"./NAME"`.
    pub main: String,
    /// The lazy scripts by the names of their modules.
    pub lazy: Vec<(String, String)>,
}

/// Bundles a module and everything it imports: each in its own function, in dependency order.
///
/// # Errors
/// The module or the line that cannot be bundled.
pub(super) fn scripts(modules: &[(&str, &str)], main: &str) -> Result<Scripts, String> {
    let mut bundle = Bundle { modules, ..Bundle::default() };
    bundle.add(main)?;
    let (mut main, mut lazy) = (bundle.out, Vec::new());
    for name in bundle.lazy {
        if bundle.done.contains(&name) {
            return Err(format!("`{name}` is loaded lazily, but the main script imports it"));
        }
        let mut script = Bundle { modules, shared: bundle.done.clone(), ..Bundle::default() };
        script.add(&name)?;
        if let Some(further) = script.lazy.first() {
            return Err(format!("`{name}` is loaded lazily, so it cannot load `{further}`"));
        }
        let shared: Vec<String> = script.used.iter().map(|used| variable(used)).collect();
        let shared = shared.join(",");
        main = main.replace(&lazy_call(&name, ""), &lazy_call(&name, &shared));
        let text = format!("export const load=({{{shared}}})=>{{\n{}return {};\n}};\n", script.out, variable(&name));
        lazy.push((name, text));
    }
    if !lazy.is_empty() {
        main.insert_str(0, LOADER);
    }
    Ok(Scripts { main, lazy })
}

/// Returns the expression that loads a lazy script and passes it these modules of the main script.
fn lazy_call(name: &str, shared: &str) -> String {
    format!("$load(\"./{name}\",{{{shared}}})")
}

#[derive(Default)]
struct Bundle<'a> {
    modules: &'a [(&'a str, &'a str)],
    out: String,
    done: Vec<String>,
    /// The modules that are being read: the chain of importers that leads to the current one.
    open: Vec<String>,
    /// The modules that another script has, and those of them that this script uses.
    shared: Vec<String>,
    used: Vec<String>,
    /// The modules that this script loads lazily.
    lazy: Vec<String>,
}

impl Bundle<'_> {
    fn add(&mut self, name: &str) -> Result<(), String> {
        if self.done.iter().any(|done| done == name) {
            return Ok(());
        }
        if self.shared.iter().any(|shared| shared == name) {
            if !self.used.iter().any(|used| used == name) {
                self.used.push(name.to_owned());
            }
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
            let line = self.with_lazy(name, line);
            let line = line.as_ref();
            let fault = || format!("`{name}` has the line `{line}`");
            if let Some(rest) = line.strip_prefix("import ") {
                let (names, from) = names_from(name, rest).ok_or_else(fault)?;
                self.add(&from)?;
                let names: Vec<String> = names.iter().map(|(outer, inner)| pair(outer, inner)).collect();
                writeln!(body, "const {{{}}}={};", names.join(","), variable(&from)).expect("a string takes all");
            } else if let Some(rest) = line.strip_prefix("export ").filter(|rest| rest.starts_with('{')) {
                let (names, from) = names_from(name, rest).ok_or_else(fault)?;
                self.add(&from)?;
                exports.extend(names.iter().map(|(inner, outer)| format!("{outer}:{}.{inner}", variable(&from))));
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

    /// Replaces the expressions of a line that load a module lazily.
    fn with_lazy<'line>(&mut self, module: &str, line: &'line str) -> Cow<'line, str> {
        let mut line = Cow::Borrowed(line);
        while let Some((before, rest)) = line.split_once("await import(\"./") {
            let Some((name, after)) = rest.split_once("\")") else { break };
            let name = beside(module, name);
            line = format!("{before}await {}{after}", lazy_call(&name, "")).into();
            if !self.lazy.contains(&name) {
                self.lazy.push(name);
            }
        }
        line
    }
}

/// Returns the name of a file in a module's folder.
fn beside(module: &str, file: &str) -> String {
    module.rsplit_once('/').map_or_else(|| file.to_owned(), |(folder, _)| format!("{folder}/{file}"))
}

/// Parses `{ a, b as c } from "./x.js";` in a module into pairs of names and the other module.
fn names_from(module: &str, text: &str) -> Option<(Vec<(String, String)>, String)> {
    let (names, from) = text.strip_prefix('{')?.split_once("} from \"")?;
    let from = from.strip_suffix("\";")?;
    let from = match from.strip_prefix("../").filter(|_| module.contains('/')) {
        Some(above) => above.to_owned(),
        None => beside(module, from.strip_prefix("./")?),
    };
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
    format!("${}", module.trim_end_matches(".js").replace(['-', '/'], "_"))
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
        assert_eq!(scripts(&modules, "main.js"), Ok(Scripts { main: expected.to_owned(), lazy: Vec::new() }));
    }

    #[test]
    fn a_module_in_a_folder_imports_from_above() {
        let modules = [
            (
                "f/main.js",
                "import { a } from \"../a.js\";\nimport { b } from \"./b.js\";\nb(a, await import(\"./c.js\"));",
            ),
            ("f/b.js", "export function b() {}"),
            ("f/c.js", "import { a } from \"../a.js\";"),
            ("a.js", "export const a = 1;"),
        ];
        let Scripts { main, lazy } = scripts(&modules, "f/main.js").unwrap();
        assert!(main.contains("const {a}=$a;\nconst {b}=$f_b;\nb(a, await $load(\"./f/c.js\",{$a}));"), "{main}");
        assert_eq!(lazy[0].0, "f/c.js");
        assert!(scripts(&[("a.js", "import { b } from \"../b.js\";")], "a.js").is_err());
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
            assert_eq!(scripts(&[("a.js", text)], "a.js"), Err(fault), "{text}");
        }
    }

    #[test]
    fn a_lazy_module_is_a_script_of_its_own() {
        let modules = [
            ("main.js", "import { a } from \"./a.js\";\nconst b = async () => (await import(\"./b.js\")).b(a);"),
            ("a.js", "export const a = 1;"),
            ("b.js", "import { a } from \"./a.js\";\nimport { c } from \"./c.js\";\nexport const b = a + c;"),
            ("c.js", "export const c = 2;"),
        ];
        let main = "\
const $a=(()=>{
const a = 1;
return{a};
})();
const $main=(()=>{
const {a}=$a;
const b = async () => (await $load(\"./b.js\",{$a})).b(a);
return{};
})();
";
        let lazy = "\
export const load=({$a})=>{
const $c=(()=>{
const c = 2;
return{c};
})();
const $b=(()=>{
const {a}=$a;
const {c}=$c;
const b = a + c;
return{b};
})();
return $b;
};
";
        let expected = Scripts { main: format!("{LOADER}{main}"), lazy: vec![("b.js".to_owned(), lazy.to_owned())] };
        assert_eq!(scripts(&modules, "main.js"), Ok(expected));
        for (main, b, fault) in [
            (
                "import { b } from \"./b.js\";\nawait import(\"./b.js\");",
                "",
                "`b.js` is loaded lazily, but the main script imports it",
            ),
            (
                "await import(\"./b.js\");",
                "await import(\"./c.js\");",
                "`b.js` is loaded lazily, so it cannot load `c.js`",
            ),
        ] {
            let modules = [("main.js", main), ("b.js", b), ("c.js", "")];
            assert_eq!(scripts(&modules, "main.js"), Err(fault.to_owned()), "{main}");
        }
    }

    #[test]
    fn sheets_are_joined_without_comments() {
        let sheets = ["/* Head. */\n\na { b: c; }\n", "/* Two\n   lines. */\nd { e: f; /* g */ }"];
        assert_eq!(styles(sheets.into_iter()), "a { b: c; }\nd { e: f; /* g */ }\n");
    }
}
