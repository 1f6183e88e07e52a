//! Tables of a replay: for the terminal, as Markdown, and as JSON.

use super::{Replay, Run, lifetimes::Lifetimes, outcome::Total};
use serde_json::{Value, json};

/// A column: its heading, and the function that formats its cells.
type Column = (&'static str, fn(&Row<'_>) -> String);

/// A row: the sums of a run, or one conversation.
struct Row<'a> {
    run: &'a Run,
    total: &'a Total,
}

const COLUMNS: &[Column] = &[
    ("WINDOW", |row| row.run.window_tokens.to_string()),
    ("SUMMARISER", |row| row.run.summariser.unwrap_or("-").to_owned()),
    ("POLICY", |row| row.run.policy.clone()),
    ("COMPACTIONS", |row| row.total.compactions.to_string()),
    ("SOURCES", |row| percent(row.total.kept.sources, row.total.kept.sources_said)),
    ("USER'S WORDS", |row| percent(row.total.kept.user_tokens, row.total.kept.user_tokens_said)),
    ("BEFORE", |row| mean(row.total.tokens_before, row.total.compactions)),
    ("AFTER", |row| mean(row.total.tokens_after, row.total.compactions)),
    ("SENT", |row| thousands(row.total.turns.input_tokens)),
    ("CACHED", |row| percent(row.total.turns.cached_tokens, row.total.turns.input_tokens)),
    ("LOST", |row| thousands(row.total.turns.lost_tokens)),
    ("SUMMARIES", |row| row.total.summaries.requests.to_string()),
    ("READ", |row| thousands(row.total.summaries.input_tokens)),
    ("WRITTEN", |row| thousands(row.total.summaries.output_tokens)),
    ("OVER", |row| some(row.total.over_window)),
    ("ENDS", |row| mean(row.total.ends_at, row.total.sessions_over_window)),
    ("FAILED", |row| some(row.total.failed)),
    ("UNPLAYED", |row| some(row.total.unplayed)),
    ("COST", |row| row.total.dollars.map_or_else(|| "-".to_owned(), |dollars| dollar(dollars.total()))),
    ("5M", |row| forgetting(row, |lifetimes| lifetimes.minutes.input_nano_usd)),
    ("5M WARM", |row| forgetting(row, |lifetimes| lifetimes.minutes.refreshed_nano_usd)),
    ("1H", |row| forgetting(row, |lifetimes| lifetimes.hour.input_nano_usd)),
    ("1H WARM", |row| forgetting(row, |lifetimes| lifetimes.hour.refreshed_nano_usd)),
];

/// The columns that contain text, in every grid.
const TEXTS: std::ops::Range<usize> = 1..3;

/// Explains the columns to readers who have not read the documentation.
pub(crate) const LEGEND: &str = "\
SOURCES, USER'S WORDS  what is kept word for word in the context at the end, of what the recorded questions need and of
                       the tokens that users said
BEFORE, AFTER          tokens of a compacted request, on average
SENT, CACHED, LOST     tokens of all requests of turns; the share that a provider's cache could have served; those that
                       it had and that had to be sent anew
SUMMARIES, READ, WRITTEN  requests for summaries, the tokens that they sent, and the tokens of the summaries
OVER, ENDS             requests that were larger than the window; the number of the first of them, on average
FAILED, UNPLAYED       compactions that failed; recorded answers that were not given, because the turn failed or was refused
5M, 1H                 the cost if the cache forgets after five minutes, or an hour; WARM: if it is refreshed while that pays";

/// Returns the lines of the table.
pub(crate) fn table(replay: &Replay) -> Vec<String> {
    aligned(&grid(replay.runs.iter().map(|run| (run, &run.total))))
}

/// Returns the lines of a table for each conversation, if these were kept.
pub(crate) fn sessions(replay: &Replay) -> Vec<(String, Vec<String>)> {
    let Some(first) = replay.runs.first() else { return Vec::new() };
    let table = |at: usize| {
        let totals = replay.runs.iter().map(|run| {
            let mut total = Total::default();
            run.sessions.get(at).iter().for_each(|session| total.add(&session.outcome));
            total
        });
        let totals: Vec<Total> = totals.collect();
        aligned(&grid(replay.runs.iter().zip(&totals)))
    };
    first.sessions.iter().enumerate().map(|(at, session)| (session.name.clone(), table(at))).collect()
}

/// Returns the heading and the cells of these rows, without empty columns.
fn grid<'a>(rows: impl Iterator<Item = (&'a Run, &'a Total)>) -> Vec<Vec<String>> {
    let rows: Vec<Vec<String>> = rows.map(|(run, total)| cells(run, total)).collect();
    let shown = shown(&rows);
    let heading = COLUMNS.iter().map(|(name, _)| (*name).to_owned()).collect();
    let pick = |row: Vec<String>| shown.iter().map(|column| row[*column].clone()).collect();
    std::iter::once(heading).chain(rows).map(pick).collect()
}

fn cells(run: &Run, total: &Total) -> Vec<String> {
    COLUMNS.iter().map(|(_, cell)| cell(&Row { run, total })).collect()
}

/// Aligns the columns of a grid: text to the left, numbers to the right.
fn aligned(grid: &[Vec<String>]) -> Vec<String> {
    let width = |column: usize| grid.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..grid.first().map_or(0, Vec::len)).map(width).collect();
    let line = |row: &Vec<String>| {
        let padded = row.iter().zip(&widths).enumerate().map(|(column, (cell, width))| {
            if TEXTS.contains(&column) { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    grid.iter().map(line).collect()
}

/// Returns the columns that are not empty. The first ones are always included.
fn shown(rows: &[Vec<String>]) -> Vec<usize> {
    let is_shown = |column: &usize| *column < TEXTS.end || rows.iter().any(|row| row[*column] != "-");
    (0..COLUMNS.len()).filter(is_shown).collect()
}

/// Returns the table as Markdown, with only the columns that compare policies.
#[cfg(test)]
pub(crate) fn markdown(replay: &Replay) -> String {
    const SHOWN: [usize; 8] = [0, 1, 2, 3, 4, 5, 8, 9];
    let mut text = String::new();
    let mut line = |cells: &[&str]| text.push_str(&format!("| {} |\n", cells.join(" | ")));
    let names = SHOWN.map(|column| COLUMNS[column].0.to_lowercase());
    line(&names.each_ref().map(String::as_str));
    line(&["---"; SHOWN.len()]);
    for run in &replay.runs {
        let cells = cells(run, &run.total);
        line(&SHOWN.map(|column| cells[column].as_str()));
    }
    text
}

/// Returns everything as JSON.
pub(crate) fn document(replay: &Replay, notes: &[String]) -> Value {
    json!({
        "sessions": replay.sessions,
        "texts": replay.texts,
        "tokens": replay.tokens,
        "notes": notes,
        "runs": replay.runs,
    })
}

/// Formats the whole cost with a cache that forgets, if it is known.
fn forgetting(row: &Row<'_>, input: fn(&Lifetimes) -> u64) -> String {
    let (Some(dollars), Some(lifetimes)) = (&row.total.dollars, &row.total.lifetimes) else { return "-".to_owned() };
    dollar(dollars.output_nano_usd + dollars.summaries_nano_usd + input(lifetimes))
}

/// Formats a number that is usually zero.
fn some(number: u64) -> String {
    if number == 0 { "-".to_owned() } else { number.to_string() }
}

fn mean(sum: u64, of: u64) -> String {
    sum.checked_div(of).map_or_else(|| "-".to_owned(), |mean| mean.to_string())
}

fn percent(part: u64, of: u64) -> String {
    let tenths = (part * 1_000 + of / 2).checked_div(of);
    tenths.map_or_else(|| "-".to_owned(), |tenths| format!("{}.{} %", tenths / 10, tenths % 10))
}

/// Formats tokens in thousands.
pub(crate) fn thousands(tokens: u64) -> String {
    match tokens {
        0..10_000 => tokens.to_string(),
        _ => format!("{}k", (tokens + 500) / 1_000),
    }
}

/// Formats dollars with four decimals.
fn dollar(nano_usd: u64) -> String {
    let tenths_of_cents = nano_usd / 100_000 + u64::from(nano_usd % 100_000 >= 50_000);
    format!("${}.{:04}", tenths_of_cents / 10_000, tenths_of_cents % 10_000)
}
