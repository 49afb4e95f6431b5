//! Signals about the remote producers of an edge.

/// A signal about the remote producers of an edge, from the receiving end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RemoteSignal {
    /// No producer routes to the consumer at the moment. A consumer that is stopping then does not
    /// wait for these producers; for others the signal has no effect.
    ProducersLeft,
    /// The sending end has restarted or the connection was cut. Earlier signals of the sending end,
    /// about leaving or expected producers and end of stream, are void.
    Restarted,
}

/// The signals that a receiving end has not passed on yet, by output. A signal applies after all
/// records and markers that are in the outbox.
#[derive(Debug, Default)]
pub(crate) struct PendingSignals(Vec<Option<RemoteSignal>>);

impl PendingSignals {
    /// Adds a signal that the producers of an output have left, unless another one is pending.
    pub(crate) fn producers_left(&mut self, output: usize) {
        if self.0.len() <= output {
            self.0.resize(output + 1, None);
        }
        self.0[output].get_or_insert(RemoteSignal::ProducersLeft);
    }

    /// Sets the signal of a restart for all of `outputs` outputs.
    pub(crate) fn restarted(&mut self, outputs: usize) {
        self.0.clear();
        self.0.resize(outputs, Some(RemoteSignal::Restarted));
    }

    /// Returns true if no signal is pending.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(Option::is_none)
    }

    /// Returns the place of the signal for an output.
    pub(crate) fn of(&mut self, output: usize) -> Option<&mut Option<RemoteSignal>> {
        self.0.get_mut(output).filter(|signal| signal.is_some())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_pending_until_it_is_taken_and_a_restart_replaces_it() {
        let mut signals = PendingSignals::default();
        signals.producers_left(1);
        assert!(!signals.is_empty() && signals.of(0).is_none() && signals.of(2).is_none());
        let taken = signals.of(1).and_then(Option::take);
        assert_eq!(taken, Some(RemoteSignal::ProducersLeft));
        assert!(signals.is_empty());
        signals.producers_left(0);
        signals.restarted(2);
        signals.producers_left(0);
        let taken = [0, 1].map(|output| signals.of(output).and_then(Option::take));
        assert_eq!(
            taken,
            [Some(RemoteSignal::Restarted); 2],
            "it has left as well"
        );
    }
}
