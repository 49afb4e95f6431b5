//! The requests of each page in each second, as a program that runs as active-active replicas: the
//! loss of a replica does not affect the output.
//!
//! The program `page-views` is this job:
//! `page-views run --set guarantee=exactly-once --set checkpoints.folder=state/a -- LOG RESULTS`,
//! started a second time with another checkpoint folder. The log, which may grow, has lines with a
//! time in milliseconds and a page: `1763769600123 /start`. `ardea replicas RESULTS` lists the
//! replicas.

use ardea::core::{Error, ErrorCode};
use ardea::prelude::*;

/// The window in which views are counted.
const SECOND: Duration = Duration::from_secs(1);
/// The largest disorder of lines.
const LAG: Duration = Duration::from_secs(1);

/// Builds the job for the arguments `LOG RESULTS`.
///
/// # Errors
/// [`ErrorCode::InvalidConfig`] for other arguments.
pub fn build(arguments: &[String]) -> Result<Pipeline> {
    let [log, results] = arguments else {
        let what = "two arguments are required: a log and a file for results";
        return Err(Error::new(ErrorCode::InvalidConfig, what)
            .hint("write for example page-views access.log views.txt"));
    };
    let p = Pipeline::new("page-views");
    p.read_from(files::lines(log).follow().build())
        .try_map(|line: &String| parse_view(line), OnError::DeadLetter)
        .with_timestamps(|(time, _)| *time, WatermarkPolicy::out_of_order(LAG))
        .key_by(|(_, page)| page.clone())
        .window(Window::tumbling(SECOND))
        .aggregate("views", count())
        .map(|views| format!("{} {} {}", views.start, views.key, views.value))
        .write_to(active_active::write_lines(results).slice(SECOND));
    Ok(p)
}

/// Parses the time and the page of a request.
fn parse_view(line: &str) -> std::result::Result<(Timestamp, String), String> {
    let (time, page) = line
        .split_once(' ')
        .ok_or("a line must have a time and a page")?;
    let millis = time.parse().map_err(|_| format!("{time:?} is no time"))?;
    Ok((Timestamp::from_millis(millis), page.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_a_time_and_a_page() {
        let view = (Timestamp::from_millis(1_500), "/a b".to_string());
        assert_eq!(parse_view("1500 /a b"), Ok(view));
        assert!(parse_view("1500").is_err() && parse_view("soon /a").is_err());
    }
}
