//! Measures the counting errors on the samples and checks the table in `README.md`.

use super::{characters, tokenizer::Vocabulary};
use reseed_protocol::content::utf16_len;
use std::{fs, path::Path, sync::Mutex};

/// Maximum error of the character weights on any sample.
const CHARACTERS_ERROR_MAX: f64 = 0.10;

struct Sample {
    name: String,
    characters: u64,
    reference: u64,
    cl100k: u64,
    weights: u64,
    quarter: u64,
}

fn samples() -> Vec<Sample> {
    // Cargo runs tests in the directory of their crate.
    let folder = Path::new("../../tests/fixtures/counting");
    let mut paths: Vec<_> =
        fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).filter(|path| path.is_file()).collect();
    paths.sort();
    paths
        .iter()
        .map(|path| {
            let text = fs::read_to_string(path).unwrap();
            Sample {
                name: path.file_stem().unwrap().to_str().unwrap().to_owned(),
                characters: text.chars().count() as u64,
                reference: Vocabulary::O200k.count(&text),
                cl100k: Vocabulary::Cl100k.count(&text),
                weights: characters::count(&text),
                quarter: utf16_len(&text).div_ceil(4),
            }
        })
        .collect()
}

fn error(counted: u64, reference: u64) -> f64 {
    counted as f64 / reference as f64 - 1.0
}

fn table(samples: &[Sample]) -> String {
    let row = |name: &str, cells: [String; 6]| format!("| {name} | {} |\n", cells.join(" | "));
    let percent = |error: f64| format!("{:+.1} %", 100.0 * error);
    let mut table = row(
        "sample",
        [
            "characters",
            "tokens (o200k)",
            "tokenizer",
            "another tokenizer (cl100k)",
            "character weights",
            "characters / 4",
        ]
        .map(str::to_owned),
    );
    table += "| --- | ---: | ---: | ---: | ---: | ---: | ---: |\n";
    for sample in samples {
        let error = |counted| percent(error(counted, sample.reference));
        table += &row(
            &sample.name,
            [
                sample.characters.to_string(),
                sample.reference.to_string(),
                "0 %".to_owned(),
                error(sample.cl100k),
                error(sample.weights),
                error(sample.quarter),
            ],
        );
    }
    let mean = |counted: fn(&Sample) -> u64| {
        let sum: f64 = samples.iter().map(|sample| error(counted(sample), sample.reference).abs()).sum();
        format!("{:.1} %", 100.0 * sum / samples.len() as f64)
    };
    table += &row(
        "mean size of the error",
        [
            String::new(),
            String::new(),
            "0 %".to_owned(),
            mean(|sample| sample.cl100k),
            mean(|sample| sample.weights),
            mean(|sample| sample.quarter),
        ],
    );
    table
}

/// Compares the README's table of this name with the measured one.
pub(super) fn check_table(name: &str, table: &str) {
    // Two tests may rewrite their tables at the same time.
    static WRITING: Mutex<()> = Mutex::new(());
    let _writing = WRITING.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let path = Path::new("context/counter/README.md");
    let committed = fs::read_to_string(path).unwrap();
    let (begin, end) = (format!("<!-- {name}: begin -->\n"), format!("<!-- {name}: end -->"));
    let (head, rest) = committed.split_once(&begin).unwrap();
    let (stands, tail) = rest.split_once(&end).unwrap();
    if std::env::var_os("UPDATE").is_some() {
        fs::write(path, format!("{head}{begin}{table}{end}{tail}")).unwrap();
    } else {
        assert_eq!(stands, table, "run `UPDATE=1 cargo test` to rewrite it");
    }
}

#[test]
fn the_table_in_the_readme_is_what_is_measured() {
    check_table("table", &table(&samples()));
}

#[test]
fn character_weights_are_near_on_every_sample() {
    let samples = samples();
    assert!(samples.len() >= 16);
    for sample in samples {
        let error = error(sample.weights, sample.reference);
        assert!(error.abs() <= CHARACTERS_ERROR_MAX, "{}: {error:+.3}", sample.name);
    }
}
