//! Clears the bytes that SQLite leaves in the unused middle of a page.
//!
//! With `secure_delete`, SQLite overwrites deleted data. But when rows moved to a neighbour and SQLite rebuilds their
//! page (`rebuildPage` in `btree.c`), copies of them stay in the gap between the page's cell pointers and its cells.
//! Nothing knows about these copies when the rows are deleted later. So after a checkpoint copies a page into the
//! database, its gap is cleared there, before the write-ahead log that still holds the page is reused.
//!
//! This is safe at any moment, even during a power loss or beside readers: only bytes that belong to nothing change,
//! and a page torn by a power loss is read from the log. The file handle must stay open as long as SQLite's own:
//! closing any handle of a file releases all of SQLite's locks on it.

use std::{collections::BTreeSet, fs::File, io, path::Path};

/// The bytes before the first frame of a write-ahead log, and before the page in each frame.
const LOG_HEADER_BYTES: u64 = 32;
const FRAME_HEADER_BYTES: u64 = 24;

/// The number of pages above which an overflow page could be mistaken for one with cells: its first byte is the highest
/// byte of a page number.
const PAGES_MAX: u32 = 1 << 24;

/// The bytes of an entry in a pointer map: a page number and the kind of the page.
const POINTER_BYTES: u32 = 5;

/// The position in the file whose page holds nothing, because locks are taken there.
const LOCKS_AT: u32 = 1 << 30;

/// The pages of a database that a write-ahead log holds.
pub(super) type Pages = BTreeSet<u32>;

/// Returns the pages in the first frames of the log beside a database.
pub(super) fn pages_in(log: &Path, frames: u64) -> io::Result<Pages> {
    let file = File::open(log)?;
    let mut size = [0; 4];
    read_at(&file, &mut size, 8)?;
    let frame = FRAME_HEADER_BYTES + u64::from(u32::from_be_bytes(size));
    let mut pages = Pages::new();
    for at in 0..frames {
        let mut page = [0; 4];
        read_at(&file, &mut page, LOG_HEADER_BYTES + at * frame)?;
        pages.insert(u32::from_be_bytes(page));
    }
    Ok(pages)
}

/// Clears the gaps of these pages in the database file, and syncs it if there was anything to clear.
pub(super) fn clear(database: &File, pages: &Pages) -> io::Result<()> {
    if pages.is_empty() {
        return Ok(());
    }
    let mut header = [0; 100];
    read_at(database, &mut header, 0)?;
    let Some(layout) = Layout::of(&header) else { return Ok(()) };
    let (mut page, mut is_changed) = (vec![0; layout.page_bytes], false);
    for number in pages.iter().copied().filter(|number| layout.may_hold_cells(*number)) {
        let at = u64::from(number - 1) * layout.page_bytes as u64;
        match read_at(database, &mut page, at) {
            Ok(()) => {}
            // The page was cut off when the file was shortened.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => continue,
            Err(error) => {
                tracing::error!(%error, page = number, "a page cannot be read: copies of deleted text may stay in it");
                continue;
            }
        }
        if let Some((start, end)) = gap(&page, layout.usable_bytes)
            && page[start..end].iter().any(|byte| *byte != 0)
        {
            page[start..end].fill(0);
            write_at(database, &page[start..end], at + start as u64)?;
            is_changed = true;
        }
    }
    if is_changed { database.sync_data() } else { Ok(()) }
}

/// Returns the page size that the header of a database gives.
pub(super) fn page_bytes(header: &[u8; 100]) -> u64 {
    match u16::from_be_bytes([header[16], header[17]]) {
        1 => 65_536,
        bytes => bytes.into(),
    }
}

/// The layout of a database's pages, from its header.
struct Layout {
    page_bytes: usize,
    usable_bytes: usize,
    /// True if some pages are pointer maps.
    has_maps: bool,
}

impl Layout {
    fn of(header: &[u8; 100]) -> Option<Self> {
        let page_bytes = usize::try_from(page_bytes(header)).ok()?;
        let usable_bytes = page_bytes.checked_sub(usize::from(header[20])).filter(|bytes| *bytes >= 480)?;
        Some(Self { page_bytes, usable_bytes, has_maps: header[52..56] != [0; 4] })
    }

    /// Returns false for pages whose first byte does not give a kind of page. The first page begins with the database's
    /// header, and only holds the definitions of tables.
    fn may_hold_cells(&self, number: u32) -> bool {
        let per_map = self.usable_bytes as u32 / POINTER_BYTES + 1;
        let locks = LOCKS_AT / self.page_bytes as u32 + 1;
        let is_place_of_map = |number: u32| number >= 2 && (number - 2).is_multiple_of(per_map);
        // If a map's position falls on the lock page, which is never written, the map is on the next page.
        let is_map = is_place_of_map(number) || number == locks + 1 && is_place_of_map(locks);
        (2..PAGES_MAX).contains(&number) && number != locks && !(self.has_maps && is_map)
    }
}

/// Returns the gap of a page: the bytes between the end of its cell pointers and its first cell. Returns `None` for a
/// page that holds no cells or is malformed.
fn gap(page: &[u8], usable_bytes: usize) -> Option<(usize, usize)> {
    let header_bytes = match page.first()? {
        // Interior pages of an index and of a table, then leaves.
        2 | 5 => 12,
        10 | 13 => 8,
        _ => return None,
    };
    let number = |at: usize| usize::from(u16::from_be_bytes([page[at], page[at + 1]]));
    let start = header_bytes + 2 * number(3);
    // The value 0 stands for 65,536.
    let end = if number(5) == 0 { 65_536 } else { number(5) };
    let cells = (header_bytes..start).step_by(2);
    let is_sound =
        start <= end && end <= usable_bytes && cells.map(number).all(|cell| cell >= end && cell < usable_bytes);
    is_sound.then_some((start, end))
}

#[cfg(unix)]
pub(super) fn read_at(file: &File, into: &mut [u8], at: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, into, at)
}

#[cfg(unix)]
fn write_at(file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::write_all_at(file, bytes, at)
}

/// Other systems may not allow writes through two handles of a file, so nothing is cleared there.
#[cfg(not(unix))]
pub(super) fn read_at(_: &File, _: &mut [u8], _: u64) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(not(unix))]
fn write_at(_: &File, _: &[u8], _: u64) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(test)]
mod tests {
    use super::{Layout, gap};

    /// Returns a leaf of a table with cells at these positions, and `0xaa` everywhere else.
    fn leaf(cells: &[u16], first: u16) -> Vec<u8> {
        let mut page = vec![0xaa; 512];
        page[0] = 13;
        page[3..5].copy_from_slice(&(cells.len() as u16).to_be_bytes());
        page[5..7].copy_from_slice(&first.to_be_bytes());
        for (at, cell) in cells.iter().enumerate() {
            page[8 + 2 * at..10 + 2 * at].copy_from_slice(&cell.to_be_bytes());
        }
        page
    }

    #[test]
    fn a_gap_lies_between_the_pointers_and_the_cells_of_a_sound_page() {
        assert_eq!(gap(&leaf(&[500, 480], 480), 512), Some((12, 480)));
        assert_eq!(gap(&leaf(&[], 512), 512), Some((8, 512)));
        // These are a cell in the gap, cells beyond the page, pointers beyond the first cell, and an overflow page.
        assert_eq!(gap(&leaf(&[400], 480), 512), None);
        assert_eq!(gap(&leaf(&[600], 480), 512), None);
        assert_eq!(gap(&leaf(&[500], 600), 512), None);
        assert_eq!(gap(&leaf(&[500], 8), 512), None);
        assert_eq!(gap(&[0; 512], 512), None);
    }

    #[test]
    fn maps_of_pointers_and_the_first_page_hold_no_cells() {
        let mut header = [0; 100];
        header[16..18].copy_from_slice(&8192_u16.to_be_bytes());
        header[55] = 4;
        let layout = Layout::of(&header).unwrap();
        let none: Vec<u32> = (1..5000).filter(|number| !layout.may_hold_cells(*number)).collect();
        assert_eq!(none, [1, 2, 1641, 3280, 4919]);
        assert!(!layout.may_hold_cells(1 << 24));
    }
}
