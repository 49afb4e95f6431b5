//! The job: orders and visits with event times, summed in sliding windows and joined, into files.

use std::path::Path;

use ardea::core::Parallelism;
use ardea::prelude::*;

/// A parsed line: the user, the time in milliseconds, and the amount.
type Event = (u32, i64, u64);

fn event(line: &str) -> Option<Event> {
    let mut parts = line.split(',');
    let event = (
        parts.next()?.parse().ok()?,
        parts.next()?.parse().ok()?,
        parts.next()?.parse().ok()?,
    );
    Some(event)
}

fn time(event: &Event) -> Timestamp {
    Timestamp::from_millis(event.1)
}

fn many(number: u32) -> Parallelism {
    number
        .try_into()
        .map_or(Parallelism::ONE, Parallelism::Exactly)
}

/// Builds the job `IN OUT [linger]`: reads `IN/orders` and `IN/visits`, writes `OUT/sums-….txt` and
/// `OUT/met-….txt`. With `linger`, the job then keeps running, and tails the file `IN/news`.
pub fn describe(args: &[String]) -> Result<Pipeline> {
    let [from, to] = [0, 1].map(|at| Path::new(args.get(at).map_or(".", String::as_str)));
    let p = Pipeline::new("orders");
    let read = |name: &str| {
        let source = files::lines(from.join(name)).parallelism(many(3)).build();
        p.read_from(source)
            .try_map(
                |line| event(line).ok_or("it is no event"),
                OnError::DeadLetter,
            )
            .with_timestamps(time, WatermarkPolicy::in_order())
    };
    let (summed, joined) = read("orders").tee();
    summed
        .key_by(|order| order.0)
        .window(Window::sliding(
            Duration::from_secs(10),
            Duration::from_secs(2),
        ))
        .aggregate("sums", sum(|order: &Event| order.2))
        .map(|sum| format!("{} {} {}", sum.key, sum.end.as_millis(), sum.value))
        .write_to(sink(to, "sums.txt"));
    joined
        .key_by(|order| order.0)
        .window(Window::tumbling(Duration::from_secs(5)))
        .join(
            "met",
            read("visits").key_by(|visit| visit.0),
            |order, visit| format!("{} {} {}", order.0, order.2, visit.2),
        )
        .write_to(sink(to, "met.txt"));
    if args.get(2).is_some_and(|word| word == "linger") {
        p.read_from(files::lines(from.join("news")).follow().build())
            .write_to(files::write_lines(to.join("news.txt")).build());
    }
    Ok(p)
}

fn sink(folder: &Path, name: &str) -> Sink<String> {
    files::write_lines(folder.join(name))
        .parallelism(many(2))
        .build()
}
