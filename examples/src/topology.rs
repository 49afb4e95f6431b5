//! Word count as a topology: lines are tracked until all their words have been counted, and
//! replayed on failure.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use ardea::Result;
use ardea::topology::*;

/// The number of occurrences of each word.
pub type Counts = Arc<Mutex<HashMap<String, u64>>>;

/// A spout that emits lines, and replays failed ones. The fields are all lines, and the numbers of
/// the lines to emit.
struct Lines(Arc<[String]>, Vec<u64>);

impl Spout for Lines {
    fn outputs(&self) -> Outputs {
        Outputs::fields(["line"])
    }

    fn next_tuple(&mut self, out: &mut SpoutCollector<'_>) -> Outcome<Next> {
        let Some(number) = self.1.pop() else {
            return Ok(Next::Done);
        };
        out.emit_tracked(MessageId(number), [&self.0[number as usize]])?;
        Ok(Next::More)
    }

    fn fail(&mut self, MessageId(number): MessageId) {
        self.1.push(number);
    }
}

/// Splits lines into lower-case words.
struct Split;

impl Bolt for Split {
    fn outputs(&self) -> Outputs {
        Outputs::fields(["word"])
    }

    fn execute(&mut self, tuple: &Tuple<'_>, out: &mut Collector<'_>) -> Outcome {
        let words = tuple.str("line")?.split(|c: char| !c.is_alphanumeric());
        for word in words.filter(|word| !word.is_empty()) {
            out.emit([word.to_lowercase()])?;
        }
        Ok(())
    }
}

/// Counts the words received by its instance, and adds them to the total at the end.
struct Count(HashMap<String, u64>, Counts);

impl Bolt for Count {
    fn execute(&mut self, tuple: &Tuple<'_>, _: &mut Collector<'_>) -> Outcome {
        *self.0.entry(tuple.str("word")?.to_string()).or_default() += 1;
        Ok(())
    }

    fn finish(&mut self, _: &mut Collector<'_>) -> Outcome {
        let mut all = self.1.lock().unwrap_or_else(PoisonError::into_inner);
        all.extend(self.0.clone());
        Ok(())
    }
}

/// Returns the topology that counts the words of `text`.
pub fn word_count(text: &str, counts: &Counts) -> Result<Topology> {
    let (lines, counts): (Arc<[String]>, _) =
        (text.lines().map(String::from).collect(), counts.clone());
    let mut topology = TopologyBuilder::new("word count");
    topology.reliability(Reliability::AtLeastOnce);
    let all = (0..lines.len() as u64).rev();
    topology.spout("lines", 1, move || {
        Lines(Arc::clone(&lines), all.clone().collect())
    });
    topology.bolt("split", 2, || Split).shuffle("lines");
    topology
        .bolt("count", 2, move || Count(HashMap::new(), counts.clone()))
        .fields("split", ["word"]);
    topology.build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_a_text_are_counted() {
        let counts = Counts::default();
        let text = "To be, or not\nto be: that is the question";
        word_count(text, &counts).unwrap().run().unwrap();
        let counts = counts.lock().unwrap();
        assert_eq!(
            (counts["be"], counts["to"], counts["is"], counts.len()),
            (2, 2, 1, 8)
        );
    }
}
