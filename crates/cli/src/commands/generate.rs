//! `ardea nexmark generate`: writes events as JSON lines.

mod counted;

use std::path::Path;

use ardea::command_line::Context;
use ardea::console::LineDisplay;
use ardea::console::format_number::grouped;
use ardea::console::{Failure, print_error};
use ardea_core::{Error, ErrorCode};
use ardea_nexmark::{GeneratorConfig, NexmarkError, write_jsonl};
use serde_json::json;

use crate::args::GenerateArgs;
use crate::output_file::write_whole;
use crate::stdout;

use counted::Counted;

/// Writes the events that the arguments describe.
pub fn run(args: &GenerateArgs, context: &Context) -> Result<(), Failure> {
    let config = GeneratorConfig {
        seed: args.seed,
        events: args.events,
        events_per_second: args.rate,
        out_of_order: args.out_of_order,
        ..GeneratorConfig::default()
    };
    let is_stdout = args.output == Path::new("-");
    let written = write_whole(&args.output, &context.interrupts, |writer| {
        let mut counted = Counted::new(
            writer,
            args.events,
            LineDisplay::of(&context.supervisor(), is_stdout),
        );
        let outcome = write_jsonl(config, &mut counted);
        counted.clear();
        outcome.map_err(of_nexmark)
    })?;
    if context.json && !is_stdout {
        return stdout::print_json(
            &json!({ "events": written, "output": args.output.display().to_string() }),
        );
    }
    if !context.quiet && !is_stdout {
        print_error(&format!(
            "{} events written to {}\n",
            grouped(written),
            args.output.display()
        ));
    }
    Ok(())
}

/// Converts the error of a NEXMark query or of its generator.
fn of_nexmark(error: NexmarkError) -> Failure {
    match error {
        NexmarkError::Setting { .. } => {
            Failure::Error(Error::new(ErrorCode::InvalidConfig, error.to_string()))
        }
        NexmarkError::Write { source, .. } => Failure::write("the events", source),
    }
}
