//! The part of the fold about the context window: compactions that are running, held, committed, undone or failed.

use super::{CompactionJob, Snapshot};
use reseed_protocol::{
    ErrorCode, JobId,
    compaction::{
        CompactionFailed, CompactionPrepared, CompactionProgress, CompactionStarted, CompactionUndone,
        ContextCompacted, FailedCompaction, RunningCompaction,
    },
};

/// The phase of a job that summarises an abandoned branch.
pub const SUMMARISING_BRANCH: &str = "summarising_branch";

/// Maximum number of remembered failures, of turns and of compactions each. The server names as many in a snapshot.
pub const FAILURES_MAX: usize = 16;

impl Snapshot {
    /// Takes over the compaction from a resume. What was known about another compaction does not apply to it.
    pub(super) fn resumed_compaction(&mut self, running: Option<RunningCompaction>) {
        let known = self.compaction.take();
        self.compaction = running.map(|running| {
            let fresh = CompactionJob::from(running);
            match known.filter(|known| known.job_id == fresh.job_id) {
                Some(CompactionJob { trigger, done, total, .. }) => CompactionJob { trigger, done, total, ..fresh },
                None => fresh,
            }
        });
    }

    /// Applies `compaction_started`.
    pub(super) fn compaction_started(&mut self, started: &CompactionStarted) {
        // It may arrive after the durable event that ended the same job.
        if self.held.as_ref().is_some_and(|held| held.job_id == started.job_id) {
            return;
        }
        self.compaction = Some(CompactionJob {
            job_id: started.job_id.clone(),
            phase: "starting".to_owned(),
            trigger: Some(started.trigger),
            background: started.background,
            done: None,
            total: None,
        });
    }

    /// Applies `compaction_progress`. If a job was not announced, it is a preview, and the session is not being
    /// compacted. Only a branch summary starts with its first step.
    pub(super) fn compaction_progressed(&mut self, progress: &CompactionProgress) {
        let CompactionProgress { job_id, phase, done, total } = progress.clone();
        let known = self.compaction.take_if(|job| job.job_id == job_id);
        if known.is_some() || phase == SUMMARISING_BRANCH {
            let job = known.unwrap_or_else(|| CompactionJob::new(job_id));
            self.compaction = Some(CompactionJob { phase, done: Some(done), total: Some(total), ..job });
        }
    }

    /// Applies `compaction_prepared`. The compaction was prepared early, and the server holds it until it is due.
    pub(super) fn compaction_prepared(&mut self, prepared: &CompactionPrepared) {
        self.end_job(&prepared.job_id);
        self.held = Some(prepared.clone());
    }

    /// Applies `context_compacted`.
    pub(super) fn compacted(&mut self, report: &ContextCompacted) {
        self.end_job(&report.job_id);
        // A committed compaction always ends the held one. Either it was made from the held one, so that no other event
        // reports the end, or it made the held one void. A replayed compaction is older than the one that is held now.
        let is_replayed = self.is_replayed();
        self.held.take_if(|held| !is_replayed || held.job_id == report.job_id);
        self.generation = report.generation;
        self.warning = None;
        let size = &mut self.context_info;
        size.token_count = report.tokens_after;
        size.usage_ratio = report.tokens_after as f64 / size.max_tokens.max(1) as f64;
        size.breakdown = report.breakdown.after;
        size.leaf_id = Some(report.entry_id.clone());
        size.generation = report.generation;
        size.compactions += 1;
        size.warning = None;
    }

    /// Applies `compaction_undone`.
    pub(super) fn compaction_undone(&mut self, undone: &CompactionUndone) {
        self.undone.push(undone.entry_id.clone());
        self.generation = undone.generation;
        self.measured(undone.context_info.clone());
    }

    /// Applies `compaction_failed`. Compactions that were cancelled or became pointless do not count as failures.
    pub(super) fn compaction_failed(&mut self, failed: &CompactionFailed) {
        self.end_job(&failed.job_id);
        self.held.take_if(|held| held.job_id == failed.job_id);
        let is_failure = !matches!(
            failed.error.code,
            ErrorCode::CompactionCancelled | ErrorCode::CompactionVoid | ErrorCode::NothingToCompact
        );
        // A failure without a trigger is that of a branch summary, which the reply to the move reports.
        if failed.background || failed.trigger.is_none() || !is_failure {
            return;
        }
        let (job_id, error) = (failed.job_id.clone(), failed.error.clone());
        remember(&mut self.failed_compactions, FailedCompaction { job_id, error, leaf_id: self.leaf_id.clone() });
    }

    /// Ends the summary of the abandoned branch. A replay may contain an earlier move than the running one.
    pub(super) fn arrived(&mut self) {
        let is_replayed = self.is_replayed();
        self.compaction.take_if(|job| !is_replayed && job.phase == SUMMARISING_BRANCH);
    }

    /// Returns true if the current durable event was already known to the last `session_opened`.
    pub(super) fn is_replayed(&self) -> bool {
        self.seq <= self.as_of_seq
    }

    /// Ends the running compaction if it is this job. A replay may contain an earlier job than the running one.
    fn end_job(&mut self, job_id: &JobId) {
        self.compaction.take_if(|job| job.job_id == *job_id);
    }
}

impl CompactionJob {
    /// Creates a job of which nothing else is known.
    fn new(job_id: JobId) -> Self {
        RunningCompaction { job_id, phase: String::new(), background: false }.into()
    }
}

/// Adds a failure to the remembered ones.
pub(super) fn remember<T>(failures: &mut Vec<T>, failure: T) {
    failures.push(failure);
    let surplus = failures.len().saturating_sub(FAILURES_MAX);
    failures.drain(..surplus);
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{Told, id, opened, snapshot};
    use super::*;
    use reseed_protocol::{context::ContextInfo, session::SessionState};
    use serde_json::{Value, json};

    fn failed(job: &str, code: &str) -> Value {
        let error = json!({"code": code, "message": "it failed", "retriable": true});
        json!({"jobId": job, "trigger": "manual", "error": error})
    }

    fn progress(job: &str, phase: &str, done: u64) -> Value {
        json!({"jobId": job, "phase": phase, "done": done, "total": 4})
    }

    /// Returns a short description of the running compaction.
    fn running(told: &Told) -> String {
        let Some(job) = &told.snapshot.compaction else { return "none".to_owned() };
        let CompactionJob { job_id, phase, background, done, .. } = job;
        format!("{job_id} {phase}{} {done:?}", if *background { " in the background" } else { "" })
    }

    #[test]
    fn a_compaction_runs_is_held_and_fails() {
        let mut told = Told::by(snapshot());
        told.ephemeral("compaction_progress", progress("preview", "summarising", 1));
        assert_eq!(running(&told), "none", "a preview is nobody's compaction");
        told.ephemeral("compaction_started", json!({"jobId": "j1", "trigger": "threshold", "background": true}));
        told.ephemeral("compaction_progress", progress("j1", "summarising", 1));
        told.ephemeral("compaction_progress", progress("preview", "summarising", 3));
        assert_eq!(running(&told), "j1 summarising in the background Some(1)");
        assert_eq!(told.snapshot.state, SessionState::Idle, "it holds nobody up");

        let prepared = json!({
            "jobId": "j1", "trigger": "threshold", "rung": "extract",
            "tokensBefore": 9, "tokensAfter": 4, "durationMs": 1,
        });
        told.ephemeral("compaction_prepared", prepared);
        told.ephemeral("compaction_started", json!({"jobId": "j1", "trigger": "threshold", "background": true}));
        assert_eq!(running(&told), "none", "it has ended already");
        told.ephemeral("compaction_started", json!({"jobId": "j2", "trigger": "manual", "background": false}));
        assert_eq!(told.snapshot.state, SessionState::Compacting);
        told.durable("compaction_failed", failed("j1", "compaction_void"));
        assert_eq!((running(&told).as_str(), told.snapshot.held.is_some()), ("j2 starting None", false));
        let mut background = failed("j0", "upstream_error");
        background["background"] = json!(true);
        told.durable("compaction_failed", background);
        told.durable("compaction_failed", failed("j2", "upstream_error"));
        assert_eq!((running(&told).as_str(), told.snapshot.state), ("none", SessionState::Idle));
        let jobs: Vec<&str> = told.snapshot.failed_compactions.iter().map(|job| job.job_id.as_str()).collect();
        assert_eq!(jobs, ["j2"], "nobody waited for the others");
    }

    #[test]
    fn a_compaction_that_is_made_changes_the_size() {
        let mut frame: Value =
            serde_json::from_str(include_str!("../../../examples/v2/events/context_compacted.json")).unwrap();
        let mut told = Told::by(snapshot());
        let before = told.snapshot.context_info.clone();
        told.ephemeral("context_warning", json!({"usageRatio": 0.95, "message": "nearly full"}));
        told.durable("context_compacted", frame["payload"].take());
        let now = &told.snapshot;
        assert_eq!((now.generation, &now.warning), (2, &None));
        let expected = ContextInfo {
            token_count: 1874,
            usage_ratio: 0.23425,
            leaf_id: Some(id("r8n4v2ch5kzw")),
            generation: 2,
            compactions: before.compactions + 1,
            breakdown: now.context_info.breakdown,
            ..before
        };
        assert_eq!(now.context_info, expected);
        assert_eq!(now.context_info.breakdown.summary, 412);
    }

    #[test]
    fn what_is_held_ends_with_any_compaction_that_is_not_replayed() {
        let held = json!({
            "jobId": "j1", "trigger": "threshold", "rung": "extract",
            "tokensBefore": 9, "tokensAfter": 4, "durationMs": 1,
        });
        let report = include_str!("../../../examples/v2/events/context_compacted.json");
        let report: Value = serde_json::from_str(report).unwrap();
        let mut told = Told::by(snapshot());
        told.snapshot.reopened(opened(json!({"resumed": "replay", "asOfSeq": 2, "held": held})));
        for (seq, is_held) in [(2, true), (3, false)] {
            told.durable("context_compacted", report["payload"].clone());
            assert_eq!((told.snapshot.seq, told.snapshot.held.is_some()), (seq, is_held));
        }
    }

    #[test]
    fn the_newest_failures_are_remembered() {
        let mut told = Told::by(snapshot());
        for number in 0..20 {
            told.durable("compaction_failed", failed(&format!("j{number}"), "upstream_error"));
        }
        let jobs: Vec<&str> = told.snapshot.failed_compactions.iter().map(|job| job.job_id.as_str()).collect();
        assert_eq!((jobs.len(), jobs[0], jobs[15]), (FAILURES_MAX, "j4", "j19"));
    }

    #[test]
    fn the_summary_of_a_branch_is_a_job_of_its_own() {
        let mut told = Told::by(snapshot());
        told.ephemeral("compaction_started", json!({"jobId": "j1", "trigger": "threshold", "background": true}));
        told.ephemeral("compaction_progress", progress("j2", SUMMARISING_BRANCH, 0));
        assert_eq!(running(&told), "j2 summarising_branch Some(0)", "it is not in the background as the other one was");
        assert_eq!(told.snapshot.state, SessionState::Compacting);
        told.durable("session_updated", json!({"name": "it has not moved"}));
        assert_eq!(running(&told), "j2 summarising_branch Some(0)");
        told.durable("session_updated", json!({"leafId": "root"}));
        assert_eq!(running(&told), "none");
    }

    #[test]
    fn a_replay_ends_only_the_moves_that_it_tells_of() {
        let compaction = json!({"jobId": "j2", "phase": SUMMARISING_BRANCH});
        let fresh = opened(json!({"resumed": "replay", "asOfSeq": 3, "compaction": compaction}));
        let mut told = Told::by(snapshot());
        told.ephemeral("compaction_started", json!({"jobId": "j1", "trigger": "threshold", "background": true}));
        told.snapshot.reopened(fresh);
        let summary = "j2 summarising_branch None";
        for (seq, is_replaying, after) in [(2, true, summary), (3, true, summary), (4, false, "none")] {
            assert_eq!(told.snapshot.is_replaying(), is_replaying, "before {seq}");
            told.durable("session_updated", json!({"leafId": "root"}));
            assert_eq!((told.snapshot.seq, running(&told).as_str()), (seq, after));
        }
    }

    #[test]
    fn a_resumed_compaction_keeps_what_the_reply_does_not_tell() {
        let mut told = Told::by(snapshot());
        told.ephemeral("compaction_started", json!({"jobId": "j1", "trigger": "threshold", "background": true}));
        told.ephemeral("compaction_progress", progress("j1", "summarising", 2));
        let compaction = json!({"jobId": "j1", "phase": "ordered"});
        told.snapshot.reopened(opened(json!({"resumed": "replay", "compaction": compaction})));
        assert_eq!(running(&told), "j1 ordered Some(2)");
        told.snapshot.reopened(opened(json!({"resumed": "replay"})));
        assert_eq!(running(&told), "none");
    }
}
