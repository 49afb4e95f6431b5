//! Blocking calls of administrative requests to brokers.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use rdkafka::error::{KafkaError, RDKafkaErrorCode};

/// Returns true if an error is transient: brokers are unavailable or a request timed out.
pub(super) fn is_passing(error: &KafkaError) -> bool {
    let code = match error {
        KafkaError::AdminOp(code) => Some(*code),
        other => other.rdkafka_error_code(),
    };
    matches!(
        code,
        Some(
            RDKafkaErrorCode::OperationTimedOut
                | RDKafkaErrorCode::RequestTimedOut
                | RDKafkaErrorCode::BrokerTransportFailure
                | RDKafkaErrorCode::AllBrokersDown
                | RDKafkaErrorCode::Resolve
                | RDKafkaErrorCode::NotCoordinator
                | RDKafkaErrorCode::LeaderNotAvailable
        )
    )
}

/// Waker that unparks a thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Blocks this thread until `future` completes. The request behind the future has its own timeout.
pub(super) fn wait_for<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(answer) => return answer,
            Poll::Pending => thread::park(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_comes_later_is_waited_for() {
        let (asked, answered) = std::sync::mpsc::channel();
        let answer = std::future::poll_fn(move |context| match answered.try_recv() {
            Ok(answer) => Poll::Ready(answer),
            Err(_) => {
                let (asked, waker) = (asked.clone(), context.waker().clone());
                thread::spawn(move || {
                    let _ = asked.send(7);
                    waker.wake();
                });
                Poll::Pending
            }
        });
        assert_eq!(wait_for(answer), 7);
    }
}
