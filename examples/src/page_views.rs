//! How often each page was asked for in each second, by a program that is meant to run twice: when one copy is killed nobody notices.
//!
//! The program `page-views` is this job: `page-views run --set guarantee=exactly-once --set snapshots.folder=state/a -- LOG RESULTS`, and once more
//! with a folder of its own for its snapshots. The log, which may grow, has lines of a time in milliseconds and a page: `1763769600123 /start`.
//! `ardea twins RESULTS` shows the copies.

use ardea::core::{Error, ErrorCode};
use ardea::prelude::*;

/// What is counted together, and written together.
const SECOND: Duration = Duration::from_secs(1);
/// How far lines may be out of order.
const LAG: Duration = Duration::from_secs(1);

/// The job for these arguments: `LOG RESULTS`.
///
/// # Errors
/// [`ErrorCode::InvalidConfig`] for others.
pub fn build(arguments: &[String]) -> Result<Pipeline> {
    let [log, results] = arguments else {
        let what = "a log and a file for results are wanted, and nothing else";
        return Err(Error::new(ErrorCode::InvalidConfig, what)
            .hint("write for example page-views access.log views.txt"));
    };
    let p = Pipeline::new("page-views");
    p.read_from(files::lines(log).follow().build())
        .try_map(|line: &String| view_of(line), OnError::DeadLetter)
        .with_timestamps(|(time, _)| *time, WatermarkPolicy::out_of_order(LAG))
        .key_by(|(_, page)| page.clone())
        .window(Window::tumbling(SECOND))
        .aggregate("views", count())
        .map(|views| format!("{} {} {}", views.start, views.key, views.value))
        .write_to(twins::write_lines(results).slice(SECOND));
    Ok(p)
}

/// When something was asked for, and what.
fn view_of(line: &str) -> std::result::Result<(Timestamp, String), String> {
    let (time, page) = line.split_once(' ').ok_or("a time and a page are wanted")?;
    let millis = time.parse().map_err(|_| format!("{time:?} is no time"))?;
    Ok((Timestamp::from_millis(millis), page.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_a_time_and_a_page() {
        let view = (Timestamp::from_millis(1_500), "/a b".to_string());
        assert_eq!(view_of("1500 /a b"), Ok(view));
        assert!(view_of("1500").is_err() && view_of("soon /a").is_err());
    }
}
