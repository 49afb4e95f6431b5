//! The words of a Kafka topic, counted: `topic-words BROKERS TOPIC [--until-present]`.

use std::process::ExitCode;

fn main() -> ExitCode {
    ardea::main(ardea_examples::topic_words::build)
}
