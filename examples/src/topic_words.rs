//! Word counts of a Kafka topic, every ten seconds of the messages' time.
//!
//! The program `topic-words` is this job: `topic-words localhost:9092 lines`. It starts with the
//! oldest message and follows the topic until Ctrl-C. With a trailing `--until-present` it ends
//! after the messages present at the start.

use ardea::core::{Boundedness, Error, ErrorCode};
use ardea::kafka::read;
use ardea::prelude::*;

/// The window in which words are counted.
const WINDOW: Duration = Duration::from_secs(10);

/// Counts the words of these lines by window.
pub fn counted<B: Boundedness>(
    lines: Stream<String, B, Timed>,
) -> Stream<WindowResult<String, u64>, B, Timed> {
    lines
        .flat_map(|line| {
            let words = line.split(|letter: char| !letter.is_alphanumeric());
            let words = words.filter(|word| !word.is_empty());
            words.map(str::to_lowercase).collect::<Vec<_>>()
        })
        .key_by(|word| word.clone())
        .window(Window::tumbling(WINDOW))
        .aggregate("words", count())
}

fn print<B: Boundedness>(counted: Stream<WindowResult<String, u64>, B, Timed>) {
    counted
        .map(|words| format!("{}  {:>9}  {}", words.start, words.value, words.key))
        .write_to(stdout::lines());
}

/// Builds the job for the arguments `BROKERS TOPIC [--until-present]`.
///
/// # Errors
/// [`ErrorCode::InvalidConfig`] for other arguments. Brokers are contacted only when the job runs.
pub fn build(arguments: &[String]) -> Result<Pipeline> {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let p = Pipeline::new("topic-words");
    match arguments[..] {
        [brokers, topic] => {
            let lines = read(brokers, topic).text().build();
            print(counted(p.read_from(lines).with_source_time()));
        }
        [brokers, topic, "--until-present"] => {
            let lines = read(brokers, topic).text().until_present().build();
            print(counted(p.read_from(lines).with_source_time()));
        }
        _ => {
            let what = "brokers and a topic are required, and optionally --until-present";
            return Err(Error::new(ErrorCode::InvalidConfig, what)
                .hint("write for example topic-words localhost:9092 lines"));
        }
    }
    Ok(p)
}
