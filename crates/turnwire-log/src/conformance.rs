//! The conformance tests that every engine must pass, also engines of other crates (feature
//! `conformance`).
//!
//! One line in a test file of the engine generates one test per case:
//!
//! ```
//! use turnwire_log::MemoryStore;
//!
//! turnwire_log::conformance!(|| async { MemoryStore::default() });
//! # turnwire_log::conformance::run(|| async { MemoryStore::default() }, "a_deleted_session_is_gone_with_all_it_had");
//! ```
//!
//! A durable engine also says how it is opened again. Then every case repeats its checks after that:
//!
//! ```
//! # use async_trait::async_trait;
//! # use std::sync::Arc;
//! # use turnwire_log::{MemoryStore, Store};
//! # struct MyStore;
//! # impl MyStore { fn open(_: &std::path::Path) -> MemoryStore { MemoryStore::default() } }
//! use turnwire_log::conformance::Engine;
//!
//! struct MyEngine(tempfile::TempDir);
//!
//! #[async_trait]
//! impl Engine for MyEngine {
//!     async fn open(&self) -> Arc<dyn Store> {
//!         Arc::new(MyStore::open(self.0.path()))
//!     }
//!
//!     async fn reopen(&self, store: Arc<dyn Store>) -> Arc<dyn Store> {
//!         drop(store);
//!         self.open().await
//!     }
//! }
//!
//! turnwire_log::conformance!(MyEngine(tempfile::tempdir().unwrap()));
//! ```

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "these are tests, and one that cannot go on has failed"
)]

mod appends;
mod blobs;
mod concurrency;
mod harness;
mod history;
mod keys_queue_blobs;
mod leases;
mod lists;
mod messages;
mod model;
mod reads;
mod retention;
mod searches;
mod sessions;

use crate::store::Store;
use async_trait::async_trait;
use harness::Harness;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

/// How the tests open an engine. For an engine that keeps nothing, a function that returns a store
/// is enough.
#[async_trait]
pub trait Engine: Send + Sync + 'static {
    /// Opens an empty store. Each case has its own engine, and calls this once.
    async fn open(&self) -> Arc<dyn Store>;

    /// Whether the engine can run on this machine. If not, its cases do nothing: say somewhere that
    /// they were skipped.
    fn can_run(&self) -> bool {
        true
    }

    /// Closes a store, and opens it again. Nothing else has it at that moment. An engine that keeps
    /// nothing returns the same store.
    async fn reopen(&self, store: Arc<dyn Store>) -> Arc<dyn Store> {
        store
    }
}

#[async_trait]
impl<F, O, S> Engine for F
where
    F: Fn() -> O + Send + Sync + 'static,
    O: Future<Output = S> + Send,
    S: Store,
{
    async fn open(&self) -> Arc<dyn Store> {
        Arc::new(self().await)
    }
}

/// Runs one case of [`CASES`] in its own runtime.
///
/// # Panics
///
/// If the engine does not do what [`Store`] says.
pub fn run(engine: impl Engine, case: &str) {
    if !engine.can_run() {
        return;
    }
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(3).enable_all().build().unwrap();
    runtime.block_on(async {
        let mut harness = Harness::open(Box::new(engine)).await;
        let end = tokio::time::timeout(Duration::from_mins(1), call(case, &mut harness)).await;
        assert!(end.is_ok(), "{case} waits for something that never comes");
    });
}

/// From one list of cases: the function that runs a case by name, and the macro with a test for
/// each.
macro_rules! suite {
    ($d:tt $($module:ident { $($case:ident)* })*) => {
        /// The names of all cases.
        pub const CASES: &[&str] = &[$($(stringify!($case),)*)*];

        async fn call(case: &str, harness: &mut Harness) {
            match case {
                $($(stringify!($case) => Box::pin($module::$case(harness)).await,)*)*
                _ => panic!("there is no case {case}"),
            }
        }

        /// Tests an engine: one test for each case of the [suite](mod@crate::conformance). The
        /// expression is an [`Engine`](crate::conformance::Engine), and is evaluated for each test.
        #[macro_export]
        macro_rules! conformance {
            ($d engine:expr) => {
                $($(
                    #[test]
                    fn $case() {
                        $d crate::conformance::run($d engine, stringify!($case));
                    }
                )*)*
            };
        }
    };
}

suite! { $
    sessions {
        a_session_is_made_once_and_found_again
        one_id_is_another_session_for_another_tenant
        many_who_make_one_session_at_once_get_the_same
        a_fork_is_open_until_it_is_complete
        a_session_made_again_has_another_number_and_epoch
        a_patch_changes_what_it_names_and_nothing_else
        metadata_and_names_come_back_as_they_were_given
        a_deleted_session_is_gone_with_all_it_had
        a_session_made_again_has_nothing_of_the_deleted_one
        an_append_after_a_delete_is_no_session
        a_delete_among_appends_leaves_nothing_behind
    }
    lists {
        sessions_are_listed_latest_change_first
        only_the_beginning_or_end_of_a_message_moves_a_session_up
        pages_of_any_size_give_every_session_once
        a_change_between_two_pages_hides_no_other_session
        a_list_is_of_one_tenant_and_of_one_status
        a_list_within_reach_does_not_depend_on_other_sessions
        open_sessions_are_those_of_all_tenants_with_an_open_reply_or_a_queue
        a_state_comes_back_as_it_was_written
        totals_are_those_of_the_sessions_that_are_there
    }
    searches {
        a_search_finds_words_of_messages_and_titles_in_any_case
        a_search_wants_all_words_in_one_text
        a_search_finds_the_beginning_of_a_word
        a_single_letter_is_searched_as_a_whole_word
        a_search_finds_words_in_scripts_without_spaces
        a_search_finds_a_single_sign
        quotes_and_operators_in_a_search_are_harmless
        a_search_keeps_to_tenant_status_and_page
        a_search_finds_only_what_is_within_reach
        a_list_that_may_take_no_time_is_too_slow_or_whole
        a_search_knows_what_was_changed
        a_search_does_not_find_what_was_deleted
    }
    appends {
        events_come_back_byte_for_byte
        events_are_dense_and_in_order
        an_append_that_does_not_go_on_from_the_end_writes_nothing
        what_is_queued_behind_a_failed_append_fails_too
        appends_land_in_the_order_of_the_calls_not_of_the_polls
        appends_land_though_nobody_waits_for_them
        a_later_append_is_not_durable_before_an_earlier_one
        a_failure_in_one_session_leaves_the_others_alone
        an_append_without_events_changes_the_rest
        an_append_to_a_session_that_never_was_is_no_session
    }
    leases {
        a_later_owner_has_the_higher_fence
        an_outdated_owner_is_fenced_and_writes_nothing
        nobody_writes_without_a_lease
        a_queued_append_of_the_old_owner_does_not_land_after_the_takeover
        a_takeover_in_the_middle_loses_nothing_that_was_acknowledged
        a_fenced_append_does_not_disturb_the_new_owner
    }
    reads {
        a_read_begins_anywhere_in_an_append
        a_read_gives_at_least_one_event
        a_read_stops_when_it_has_so_many_bytes
        a_read_behind_the_end_is_empty
        a_read_before_what_is_kept_says_where_it_begins
    }
    messages {
        messages_come_in_the_order_of_their_first_events
        messages_are_listed_by_place_limit_and_author
        a_list_of_messages_ends_when_it_has_so_many_bytes
        a_message_comes_back_whole
        a_message_belongs_to_its_session
        superseded_messages_stay_and_say_so
        messages_made_again_take_the_place_of_the_old
    }
    history {
        a_session_is_found_by_the_first_known_history
        only_the_latest_sessions_of_a_history_are_found
        a_deleted_session_is_not_found_by_its_history
    }
    keys_queue_blobs {
        a_key_is_written_with_its_append_or_not_at_all
        a_key_belongs_to_its_tenant
        the_queue_keeps_its_order
        the_queue_changes_with_its_append_or_not_at_all
        a_blob_is_stored_once_for_each_tenant
        a_healthy_store_says_so
    }
    blobs {
        a_large_blob_is_stored_and_read_in_pieces
        an_upload_ends_once_or_leaves_nothing
        a_tenant_cannot_store_more_than_its_quota
        a_deleted_blob_is_gone_and_makes_room
        the_type_of_a_blob_can_be_changed
        a_blob_that_nobody_uses_goes_after_a_while
        a_blob_stays_while_a_session_refers_to_it
        a_blob_goes_with_the_last_session_that_refers_to_it
        a_reference_may_come_before_its_blob
        retention_takes_no_blob_from_whoever_begins_to_use_it
    }
    retention {
        retention_removes_nothing_that_it_was_not_asked_to
        old_replies_go_and_their_messages_stay
        everything_can_go_and_the_log_goes_on
        an_open_reply_stays
        replies_that_overlap_go_together
        a_finished_reply_that_overlaps_an_open_one_stays
        an_old_event_behind_a_young_one_stays
        the_oldest_go_until_the_rest_is_small_enough
        replies_of_one_append_are_told_apart_or_kept
        old_keys_go
        retention_among_appends_loses_nothing
    }
    concurrency {
        many_writers_of_many_sessions_lose_nothing
        what_was_written_together_is_seen_together
    }
    model {
        random_operations_agree_with_a_model
    }
}
