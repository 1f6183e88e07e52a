//! The contract of [`SessionStore`]: one suite that every store passes.
//!
//! A store's tests call [`contract_suite!`] with an expression that builds a [`Subject`]; each case becomes a test.

pub(crate) mod cluster;
pub(crate) mod tests;

pub(crate) use tests::{NOW, append, append_of, control, entry, id, log, short, spending::usage_row};

use crate::SessionStore;
use std::any::Any;

/// An empty store to test, and whatever must live as long as it does (a directory).
pub(crate) struct Subject {
    pub(crate) store: Box<dyn SessionStore>,
    _keep: Box<dyn Any + Send>,
}

impl Subject {
    pub(crate) fn new(store: impl SessionStore + 'static, keep: impl Any + Send) -> Self {
        Self { store: Box::new(store), _keep: Box::new(keep) }
    }
}

/// Generates a test for each case of the contract; the argument is a future that builds a [`Subject`].
macro_rules! contract_suite {
    ($build:expr) => {
        $crate::conformance::contract_suite!($build;
            writing: a_session_is_made_once,
            writing: a_command_creates_one_session,
            writing: a_session_is_found_by_the_command_that_created_it,
            writing: a_session_that_is_not_there_is_not_found,
            writing: what_is_appended_is_read_back_in_order,
            writing: a_wrong_seq_or_term_is_fenced_and_nothing_is_written,
            writing: a_later_open_fences_the_lease_before_it,
            writing: a_command_is_written_once,
            writing: an_entry_is_written_once,
            writing: a_mark_is_kept_without_a_record,
            writing: the_head_is_that_of_the_last_append,
            writing: a_body_of_any_text_comes_back_byte_for_byte,
            writing: a_deleted_session_leaves_nothing_behind,
            writing: the_usage_of_each_owner_is_counted,
            writing: a_secret_is_made_once,
            spending: usage_is_written_with_its_append_and_kept,
            spending: usage_is_summed_by_what_is_asked_for,
            spending: usage_is_summed_in_steps,
            spending: old_usage_is_removed,
            spending: of_an_owner_who_is_forgotten_only_sums_are_left,
            minutes: minutes_are_read_in_order_and_the_oldest_are_removed,
            reading: empty_sessions_are_found_by_their_age,
            writing: of_many_appends_at_one_place_one_is_written,
            writing: sessions_written_at_once_do_not_mix,
            writing: a_closed_store_refuses_everything,
            reading: records_are_read_from_any_place,
            reading: an_entry_is_found_by_its_id,
            reading: a_path_is_one_branch_newest_first,
            reading: a_log_window_holds_entries_only,
            reading: a_path_after_an_entry_is_oldest_first,
            reading: a_page_of_entries_ends_before_it_is_too_large,
            trees: children_and_roots_come_in_the_order_of_the_log,
            trees: a_large_tree_is_the_same_in_one_piece_as_entry_by_entry,
            trees: entries_of_one_kind_are_paged,
            trees: a_subtree_is_read_breadth_first_and_counts_children,
            trees: a_subtree_ends_when_its_bodies_are_large_enough,
            trees: the_newest_leaf_below_an_entry_is_found,
            trees: a_circle_of_parents_ends_every_walk,
            trees: a_random_tree_answers_like_its_plain_model,
            reading: a_list_is_ordered_paged_searched_and_of_one_owner,
            reading: a_session_that_is_being_made_is_not_listed_among_the_others,
            reading: pages_hold_each_session_once,
            reading: sessions_that_have_not_changed_since_a_time_are_listed_alone,
            reading: an_invalid_cursor_is_refused,
            searching: words_are_found_in_any_language,
            searching: no_query_is_an_error,
            searching: a_search_covers_what_was_said_and_done,
            searching: a_path_and_a_position_bound_a_search,
            searching: hits_are_the_newest_and_as_many_as_asked_for,
            searching: a_search_stays_with_its_session_and_owner,
            searching: an_old_session_among_others_is_found,
        );
    };
    ($build:expr; $($file:ident: $case:ident,)*) => {
        $(
            #[tokio::test]
            async fn $case() {
                let subject: $crate::conformance::Subject = $build.await;
                $crate::conformance::tests::$file::$case(&*subject.store).await;
            }
        )*
    };
}
pub(crate) use contract_suite;
