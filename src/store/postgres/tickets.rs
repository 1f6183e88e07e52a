//! One-time tickets: issued on one server, redeemed on any. The table is unlogged, so a crash of the database deletes
//! them.

use super::{fault::Fault, readers::Readers};
use crate::{Error, NewTicket, TicketBounds, TicketPut, TicketsOf, checksum::int};
use std::time::Duration;

/// Stores a ticket, unless there are too many unused ones.
pub(super) async fn put(readers: &Readers, ticket: &NewTicket, bounds: TicketBounds) -> Result<TicketPut, Error> {
    let sql = "WITH old AS (DELETE FROM ticket WHERE expires_at <= clock_timestamp()), \
         n AS (SELECT count(*) AS of_all, count(*) FILTER (WHERE owner = $3) AS of_owner, \
           count(*) FILTER (WHERE service = $4) AS of_service FROM ticket WHERE expires_at > clock_timestamp()), \
         put AS (INSERT INTO ticket (hash, id, owner, service, body, made_at, expires_at) \
           SELECT $1, $2, $3, $4, $5, clock_timestamp(), \
             clock_timestamp() + $6::bigint * interval '1 millisecond' FROM n \
           WHERE ($7::bigint = 0 OR of_all < $7) AND ($8::bigint = 0 OR of_owner < $8) \
           AND ($9::bigint = 0 OR of_service < $9) \
           ON CONFLICT (hash) DO NOTHING) \
         SELECT of_all, of_owner, of_service FROM n";
    let (hash, body, life) = (&ticket.hash[..], ticket.body.as_bytes(), millis(ticket.life));
    let (owner, service) = (ticket.owner.as_bytes(), ticket.service.as_ref().map(|name| name.as_bytes()));
    let max = |most: usize| i64::try_from(most).unwrap_or(i64::MAX);
    let (all, of_owner, of_service) = (max(bounds.all_max), max(bounds.owner_max), max(bounds.service_max));
    let row = readers
        .write(|db, _| async move {
            db.row(sql, &[&hash, &ticket.id, &owner, &service, &body, &life, &all, &of_owner, &of_service]).await
        })
        .await?;
    let row = row.ok_or_else(|| Error::Unknown("the database did not store a ticket".to_owned()))?;
    let is_full = |column, most: i64| -> Result<bool, Fault> { Ok(most > 0 && row.try_get::<_, i64>(column)? >= most) };
    Ok(if is_full(0, all)? {
        TicketPut::Full
    } else if is_full(1, of_owner)? {
        TicketPut::OwnerFull
    } else if is_full(2, of_service)? {
        TicketPut::ServiceFull
    } else {
        TicketPut::Stored
    })
}

/// Removes a ticket and returns it if it has not expired. If several servers ask at the same time, only one gets it.
pub(super) async fn take(readers: &Readers, hash: &[u8; 32]) -> Result<Option<(String, Duration)>, Error> {
    let sql = "DELETE FROM ticket WHERE hash = $1 RETURNING body, expires_at > clock_timestamp(), \
               (extract(epoch FROM clock_timestamp() - made_at) * 1000)::bigint";
    let hash = &hash[..];
    let Some(row) = readers.write(|db, _| async move { db.row(sql, &[&hash]).await }).await? else { return Ok(None) };
    let read = || -> Result<_, Fault> { Ok((row.try_get::<_, Vec<u8>>(0)?, row.try_get(1)?, row.try_get(2)?)) };
    let (body, is_valid, age): (Vec<u8>, bool, i64) = read()?;
    let body = String::from_utf8(body).map_err(|_| Error::Unknown("a stored ticket is not text".to_owned()))?;
    Ok(is_valid.then(|| (body, Duration::from_millis(age.max(0).cast_unsigned()))))
}

/// Removes unused tickets, of a service or of anyone.
pub(super) async fn withdraw(readers: &Readers, service: &str, of: TicketsOf<'_>) -> Result<u64, Error> {
    let sql = "WITH gone AS (DELETE FROM ticket WHERE service = $1 AND (id = $2 OR owner = $3) OR owner = $4 \
               RETURNING expires_at > clock_timestamp() AS valid) SELECT count(*) FROM gone WHERE valid";
    let (id, owner, anyone) = match of {
        TicketsOf::Id(id) => (Some(id), None, None),
        TicketsOf::Owner(owner) => (None, Some(owner.as_bytes()), None),
        TicketsOf::Anyone(owner) => (None, None, Some(owner.as_bytes())),
    };
    let service = service.as_bytes();
    let row = readers.write(|db, _| async move { db.row(sql, &[&service, &id, &owner, &anyone]).await }).await?;
    let count = row.map_or(Ok(0), |row| row.try_get::<_, i64>(0)).map_err(Fault::from)?;
    Ok(count.cast_unsigned())
}

fn millis(time: Duration) -> i64 {
    int(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}
