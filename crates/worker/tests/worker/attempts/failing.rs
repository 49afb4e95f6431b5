//! Attempts that fail or finish.

use super::*;

#[test]
fn a_life_that_fails_is_told_and_the_process_goes_on_with_the_next() {
    runtime().block_on(async {
        let mut cluster = Cluster::start(u64::MAX).await;
        let from = Some((1, cluster.publish_more(EpochKind::Usual).await));
        // The checkpoint to restore is damaged.
        *cluster.memory.unreadable.lock().unwrap() = Some(ErrorCode::CheckpointDamaged);
        (cluster.master.life, cluster.master.run) = (life(2, from), Run::Prepared);
        cluster.master.assign().await;
        let unreadable = |master: &Master| {
            let why = master.lives_over.get(&Generation(2));
            matches!(why, Some(AttemptEnd::Unreadable(_)))
        };
        cluster.master.listen_until(unreadable).await;
        // The checkpoint is temporarily unavailable.
        *cluster.memory.unreadable.lock().unwrap() = Some(ErrorCode::CheckpointStoreUnavailable);
        (cluster.master.life, cluster.master.run) = (life(3, from), Run::Prepared);
        cluster.master.assign().await;
        let away = |master: &Master| {
            let why = master.lives_over.get(&Generation(3));
            matches!(why, Some(AttemptEnd::Away(_)))
        };
        cluster.master.listen_until(away).await;
        *cluster.memory.unreadable.lock().unwrap() = None;
        cluster.master.begin_life(life(4, from)).await;
        // An instance fails.
        cluster.job.fails.store(true, Ordering::Release);
        let failed = |master: &Master| {
            let why = master.lives_over.get(&Generation(4));
            matches!(why, Some(AttemptEnd::Failed(_)))
        };
        cluster.master.listen_until(failed).await;
        cluster.master.begin_life(life(5, from)).await;
        cluster.publish_more(EpochKind::Usual).await;
        cluster.end().await;
    });
}

#[test]
fn a_commit_that_could_not_be_published_is_not_acknowledged_and_published_by_the_next_life() {
    runtime().block_on(async {
        let mut cluster = Cluster::start(u64::MAX).await;
        let newest = cluster.publish_more(EpochKind::Usual).await;
        // Otherwise this epoch is the one whose publication fails, and no epoch follows in this
        // attempt.
        let has_heard = |master: &Master| {
            let mut reports = master.reports.iter();
            reports.any(|(from, message)| {
                *from == ContainerId(2) && message.report == ParticipantReport::CommitDone(newest)
            })
        };
        cluster.master.listen_until(has_heard).await;
        let before = cluster.job.count();
        cluster.job.refuses.store(true, Ordering::Release);
        let epoch = cluster.commit_next(EpochKind::Usual).await;
        let failed = |master: &Master| {
            let why = master.lives_over.get(&Generation(1));
            matches!(why, Some(AttemptEnd::Failed(why)) if why.reason.contains("nobody takes it"))
        };
        cluster.master.listen_until(failed).await;
        let mut reports = cluster.master.reports.iter();
        let heard = reports.any(|(from, message)| {
            *from == ContainerId(2) && message.report == ParticipantReport::CommitDone(epoch)
        });
        assert!(!heard);
        cluster.master.begin_life(life(2, Some((1, epoch)))).await;
        until(|| cluster.job.count() != before).await;
        cluster.publish_more(EpochKind::Usual).await;
        cluster.end().await;
    });
}

#[test]
fn a_job_that_comes_to_its_end_has_published_everything_when_that_is_committed() {
    runtime().block_on(async {
        let mut cluster = Cluster::start(500).await;
        let job = Arc::clone(&cluster.job);
        let all_ended = |master: &Master| {
            let ended = |container: u32| {
                let mut reports = master.reports.iter();
                reports.any(|(from, message)| {
                    let has_ended = matches!(message.report, ParticipantReport::Ended { .. });
                    *from == ContainerId(container) && has_ended
                })
            };
            ended(1) && ended(2)
        };
        cluster.master.listen_until(all_ended).await;
        assert_eq!(job.count(), 0);
        cluster.master.reports.clear();
        cluster
            .master
            .say(Some(Epoch(1)), CoordinatorMessage::Committed)
            .await;
        let all_heard = |master: &Master| {
            let heard = |container: u32| {
                let mut reports = master.reports.iter();
                reports.any(|(from, message)| {
                    let has_heard = message.report == ParticipantReport::CommitDone(Epoch(1));
                    *from == ContainerId(container) && has_heard
                })
            };
            heard(1) && heard(2)
        };
        cluster.master.listen_until(all_heard).await;
        assert_eq!(job.count(), 500);
        cluster.end().await;
    });
}
