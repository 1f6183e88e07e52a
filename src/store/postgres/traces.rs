//! Searches the tables for what is left of a user.

use super::{fault::Fault, readers::Readers};
use crate::{Error, Traces, traces::is_searched_in_texts};
use reseed_protocol::SessionId;

/// Searches every column that holds text. Ids and names of the server's own are `text`, and what people wrote is
/// `bytea`, in which a short name is searched for only as a whole.
pub(super) async fn search(readers: &Readers, owner: &str, sessions: &[SessionId]) -> Result<Traces, Error> {
    let ids: &Vec<&str> = &sessions.iter().map(SessionId::as_str).collect();
    let columns = "SELECT table_name::text, column_name::text, data_type = 'bytea' FROM information_schema.columns \
                   JOIN information_schema.tables USING (table_schema, table_name) \
                   WHERE table_schema = current_schema() AND table_type = 'BASE TABLE' \
                   AND data_type IN ('text', 'bytea') ORDER BY table_name, ordinal_position";
    let columns = &readers.read(|db| async move { db.rows(columns, &[]).await }).await?;
    let mut traces = Traces::default();
    for row in columns {
        let read = || Ok((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?));
        let (table, column, is_bytes): (&str, &str, bool) = read().map_err(Fault::Database)?;
        let condition = match (is_bytes, is_searched_in_texts(owner)) {
            (false, _) => format!("convert_to(\"{column}\", 'UTF8') = $1 OR \"{column}\" = ANY ($2)"),
            (true, true) => format!("position($1 IN \"{column}\") > 0 OR $2::text[] IS NULL"),
            (true, false) => format!("\"{column}\" = $1 OR $2::text[] IS NULL"),
        };
        let sql = &format!("SELECT count(*) FROM \"{table}\" WHERE {condition}");
        let found = readers.read(|db| async move { db.row(sql, &[&owner.as_bytes(), ids]).await }).await?;
        let count = found.map_or(Ok(0), |row| row.try_get::<_, i64>(0)).map_err(Fault::Database)?;
        traces.add(&format!("{table}.{column}"), count.cast_unsigned());
    }
    // The rows of deleted sessions are removed in the background, and do not name their owner.
    let waiting = readers.read(|db| async move { db.row("SELECT count(*) FROM removal", &[]).await }).await?;
    let count = waiting.map_or(Ok(0), |row| row.try_get::<_, i64>(0)).map_err(Fault::Database)?;
    traces.add("removal", count.cast_unsigned());
    Ok(traces)
}
