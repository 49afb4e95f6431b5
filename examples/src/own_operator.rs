//! A custom keyed operator with state and timers: the pages of each visit to a site.

use std::borrow::Cow;

use ardea::core::{
    Checkpointed, Inbox, InstanceContext, Ordinal, Outbox, Processor, Progress, Watermark,
};
use ardea::prelude::*;
use ardea::state::{KeyedState, ListState, NamedState, OperatorState, StateFields};

/// The silence of a user after which a visit is over.
const SILENCE: Duration = Duration::from_secs(1800);
/// The maximum number of visits that end per call, which keeps the call short.
const ENDS_PER_CALL: usize = 1000;

/// Collects the pages of each user. Emits `(user, pages)` when the user has been silent for half an
/// hour.
pub struct VisitsP {
    state: OperatorState<Visits>,
}

struct Visits {
    /// Per user, the time of the last page, and a timer for the end of the visit.
    last: KeyedState<String, Timestamp>,
    pages: ListState<String, String>,
}

impl StateFields for Visits {
    fn fields(&mut self) -> Vec<&mut dyn NamedState> {
        vec![&mut self.last, &mut self.pages]
    }
}

impl Default for VisitsP {
    fn default() -> Self {
        VisitsP {
            state: OperatorState::new(Visits {
                last: KeyedState::checkpointed("last"),
                pages: ListState::checkpointed("pages"),
            }),
        }
    }
}

impl Processor for VisitsP {
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.state.open(context)
    }

    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, _: &mut Outbox) -> Result<()> {
        let Visits { last, pages } = &mut *self.state;
        for ((user, page), time) in inbox.rows::<(String, String)>()?.drain_front(usize::MAX) {
            let slot = last.slot(Cow::Borrowed(&user), || time)?;
            if let Some((_, last, mut timers)) = last.use_at(slot, time) {
                timers.clear_event(*last + SILENCE);
                *last = time.max(*last);
                timers.set_event(*last + SILENCE);
            }
            pages.push(&user, page)?;
        }
        Ok(())
    }

    fn on_watermark(&mut self, watermark: Watermark, outbox: &mut Outbox) -> Result<Progress> {
        let progress = self.end_visits(watermark, outbox)?;
        if progress.done {
            outbox.watermark(watermark);
        }
        Ok(progress)
    }

    fn complete(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        self.end_visits(Watermark::END, outbox)
    }

    fn checkpointed(&mut self) -> Option<&mut dyn Checkpointed> {
        Some(&mut self.state)
    }
}

impl VisitsP {
    /// Emits the visits that are over at `watermark`.
    fn end_visits(&mut self, watermark: Watermark, outbox: &mut Outbox) -> Result<Progress> {
        let Visits { last, pages } = &mut *self.state;
        last.set_watermark(watermark);
        let mut lane = outbox.lane::<(String, Vec<String>)>(Ordinal::FIRST)?;
        let (made, mut left) = (!lane.is_full(), ENDS_PER_CALL);
        while !lane.is_full()
            && let Some((time, slot)) = last.next_event_timer(&mut left)?
        {
            if let Some(user) = last.key(slot).cloned() {
                lane.push((user.clone(), pages.iter(&user).cloned().collect()), time);
                pages.clear(&user);
                last.remove(slot);
            }
        }
        let done = !last.has_due()?;
        Ok(Progress { made, done })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ardea::testkit::{Expected, ProcessorTest, TestInput};

    #[test]
    fn a_visit_ends_half_an_hour_after_its_last_page_whatever_fails() {
        let at = |minutes: i64| Timestamp::from_secs(60 * minutes);
        let view = |user: &str, page: &str| (user.to_string(), page.to_string());
        let visit = |user: &str, pages: &[&str]| {
            (
                user.to_string(),
                pages.iter().map(|it| it.to_string()).collect::<Vec<_>>(),
            )
        };
        ProcessorTest::new(VisitsP::default)
            .input::<(String, String)>(
                TestInput::new()
                    .record(view("ann", "/"), at(0))
                    .record(view("bob", "/"), at(5))
                    .record(view("ann", "/a"), at(20))
                    .watermark(at(36))
                    .record(view("bob", "/b"), at(40))
                    .watermark(at(60))
                    .record(view("ann", "/"), at(61)),
            )
            .output::<(String, Vec<String>)>(Expected::unordered([
                visit("bob", &["/"]),
                visit("ann", &["/", "/a"]),
                visit("bob", &["/b"]),
                visit("ann", &["/"]),
            ]))
            .survives()
            .run();
    }
}
