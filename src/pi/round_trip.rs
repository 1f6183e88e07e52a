//! Property tests: import and export are lossless for any input, from pi's lines through our entries and from our
//! entries through pi's lines. A failing case is minimised and printed.

mod generate;

use super::{
    Exporter, Importer, Json,
    import::HEADER,
    read::{Item, Reader},
};
use generate::{contents, line};
use proptest::prelude::*;
use reseed_core::session::IdSource;
use reseed_protocol::{Entry, EntryData, EntryId, Timestamp, compaction::Pin};

const HEADER_LINE: &str =
    r#"{"type":"session","version":3,"id":"s-1","timestamp":"2026-01-05T09:00:00.000Z","cwd":"/home","odd":[1]}"#;

/// The contents of a file: its entries, and which of them are pinned or undone.
#[derive(Debug, Clone, Default, PartialEq)]
struct Contents {
    entries: Vec<Entry>,
    pins: Vec<Pin>,
    undone: Vec<EntryId>,
}

/// Reads lines as the importer does; each entry is stored and read back.
fn import(lines: &[String]) -> Contents {
    let mut reader = Reader::new(IdSource::seeded(1));
    let mut importer: Option<Importer> = None;
    let mut entries = Vec::new();
    for line in lines {
        match reader.line(line).unwrap() {
            Item::Blank => {}
            Item::Header(header) => importer = Some(Importer::new(header, IdSource::seeded(2))),
            Item::Entry(line) => {
                let entry = importer.as_mut().unwrap().entry(&line);
                entries.push(serde_json::from_str(&serde_json::to_string(&entry).unwrap()).unwrap());
            }
        }
    }
    let (pins, undone) = importer.as_ref().map(|i| (i.pins().to_vec(), i.undone().to_vec())).unwrap_or_default();
    entries.extend(importer.and_then(Importer::finish));
    Contents { entries, pins, undone }
}

fn export(Contents { entries, pins, undone }: &Contents) -> Vec<String> {
    let exporter = Exporter::new("s-1".parse().unwrap(), Timestamp(1_767_603_600_000));
    let mut exporter = exporter.keeping(pins, undone);
    let mut lines: Vec<String> = entries.iter().flat_map(|entry| exporter.entry(entry)).collect();
    let leaf = entries.last().map(|entry| entry.entry_id.clone());
    lines.extend(exporter.finish(leaf.as_ref(), "marker".parse().unwrap(), Timestamp(0)));
    lines
}

fn read(line: &str) -> Json {
    serde_json::from_str(line).unwrap()
}

fn values(lines: &[String]) -> Vec<Json> {
    lines.iter().map(|line| read(line)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn every_line_of_pis_comes_back(lines in prop::collection::vec(line(), 0..10)) {
        let mut file = vec![HEADER_LINE.to_owned()];
        file.extend(lines);
        let written = export(&import(&file));
        prop_assert_eq!(written.len(), file.len());
        for (written, line) in written.iter().zip(&file) {
            prop_assert_eq!(read(written), read(line), "{} became {}", line, written);
        }
        // The second round starts from the written lines.
        prop_assert_eq!(values(&export(&import(&written))), values(&written));
    }

    #[test]
    fn every_entry_of_ours_comes_back(contents in contents()) {
        let written = export(&contents);
        let mut read = import(&written);
        // pi sees no undone compaction, and the line that names the pins is an entry of its own.
        let compactions = written.iter().filter(|line| line.contains(r#""type":"compaction""#) && !line.contains("reseed.undone"));
        let counting = contents.entries.iter().filter(|entry| matches!(entry.data, EntryData::Compaction(_)));
        let counting = counting.filter(|entry| !contents.undone.contains(&entry.entry_id)).count();
        prop_assert!(compactions.count() >= counting);
        for line in written.iter().map(|line| self::read(line)) {
            let id = line.get("id").and_then(Json::as_text).unwrap_or_default();
            let is_undone = contents.undone.iter().any(|undone| undone.as_str() == id);
            prop_assert!(!is_undone || line.get("type").and_then(Json::as_text) == Some("custom"), "{:?}", line);
        }
        if !contents.pins.is_empty() {
            prop_assert_eq!(read.entries.pop().map(|entry| entry.entry_id.to_string()), Some("marker".to_owned()));
        }
        if let Some(imported) = read.entries.first_mut().and_then(|first| first.imported.as_mut()) {
            imported.remove(HEADER);
        }
        for entry in &mut read.entries {
            entry.imported.take_if(|imported| imported.is_empty());
        }
        prop_assert_eq!(&read, &contents, "by way of {:?}", &written);
        // The lines also survive a round through the entries that were read.
        prop_assert_eq!(values(&export(&import(&written))), values(&written));
    }
}

#[test]
fn a_file_without_entries_comes_back() {
    let written = export(&import(&[HEADER_LINE.to_owned()]));
    assert_eq!(values(&written), [read(HEADER_LINE)]);
}

#[test]
fn an_unpaired_surrogate_round_trips() {
    let line = r#"{"type":"message","id":"a","parentId":null,"message":{"role":"user","content":"\ud83d"}}"#;
    let written = export(&import(&[HEADER_LINE.to_owned(), line.to_owned()]));
    assert_eq!(written[1], line);
}
