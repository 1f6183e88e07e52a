//! Prints the tables of `README.md` beside this file.

use super::{
    adapt::{KNOWN, Known},
    openai, refusal,
};
use crate::core::need::Need;

/// The table of the README, generated from the known servers and the refusals that are recognised.
fn table() -> String {
    let mut rows = vec![["server", "what it needs", "how it is recognised"].map(str::to_owned)];
    let names = |needs: &[Need]| needs.iter().map(|need| format!("`{need}`")).collect::<Vec<_>>().join(", ");
    for (server, known, needs) in KNOWN {
        let how = match known {
            Known::Host(end) => format!("by address: `{end}`"),
            Known::Model(parts) => format!("by the model's name: {}", parts.join(", ")),
        };
        rows.push([(*server).to_owned(), names(needs), how]);
    }
    rows.extend(openai::models::rows());
    let mut refused: Vec<(&str, Vec<Need>)> = Vec::new();
    for &(server, need, _) in refusal::tests::EXAMPLES {
        match refused.iter_mut().find(|(known, _)| *known == server) {
            Some((_, needs)) if needs.contains(&need) => {}
            Some((_, needs)) => needs.push(need),
            None => refused.push((server, vec![need])),
        }
    }
    rows.extend(
        refused.iter().map(|(server, needs)| [(*server).to_owned(), names(needs), "by what it refused".into()]),
    );
    rows.insert(1, ["---"; 3].map(str::to_owned));
    let mut text: String = rows.iter().map(|row| format!("| {} |\n", row.join(" | "))).collect();
    text.push_str("\n| name | what is done |\n| --- | --- |\n");
    text.extend(Need::ALL.iter().map(|need| format!("| `{need}` | {} |\n", need.what())));
    text
}

#[test]
fn the_tables_of_the_readme_are_those_of_the_code() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/src/provider/README.md");
    let (from, to) = ("<!-- printed by `UPDATE=1 cargo test --lib provider::documented` -->\n", "<!-- end -->");
    let committed = std::fs::read_to_string(file).unwrap();
    let (head, rest) = committed.split_once(from).unwrap();
    let (_, tail) = rest.split_once(to).unwrap();
    let printed = format!("{head}{from}{}{to}{tail}", table());
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(file, printed).unwrap();
    } else {
        assert!(committed == printed, "{file} is out of date: run UPDATE=1 cargo test --lib provider::documented");
    }
}
