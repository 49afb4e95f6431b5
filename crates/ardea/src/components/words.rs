//! A spout of random words.

use std::time::Duration;

use ardea_core::{Clock, Error, ErrorCode, Result};
use ardea_state::InstanceValue;
use ardea_topology::{
    ComponentContext, ComponentState, Next, Outcome, Outputs, Settings, Spout, SpoutCollector,
};
use serde::{Deserialize, Serialize};

/// The syllables of words.
const SYLLABLES: [&str; 16] = [
    "ka", "lo", "mi", "ne", "ru", "sa", "te", "vo", "ba", "di", "fu", "go", "he", "ji", "pa", "zu",
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WordsSettings {
    rate: Option<f64>,
    total: Option<u64>,
    #[serde(default = "a_thousand")]
    vocabulary: u32,
    #[serde(default = "one")]
    seed: u64,
}

fn a_thousand() -> u32 {
    1000
}

fn one() -> u64 {
    1
}

/// The position of an instance in its sequence of words.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct Position {
    /// The state of the pseudorandom sequence; `None` before the first word.
    random: Option<u64>,
    /// The number of emitted words.
    emitted: u64,
}

const START: Position = Position {
    random: None,
    emitted: 0,
};

/// A spout of random words: the same seed and instance give the same words.
pub(super) struct Words {
    rate: Option<f64>,
    total: Option<u64>,
    vocabulary: u32,
    /// The start of the pseudorandom sequence of this instance.
    seed: u64,
    position: InstanceValue<Position>,
    clock: Option<Clock>,
    /// The time at which the first word was due.
    began: Option<Duration>,
    word: String,
}

impl Words {
    pub(super) fn of(settings: &Settings) -> Result<Self> {
        let WordsSettings {
            rate,
            total,
            vocabulary,
            seed,
        } = settings.parse()?;
        let wrong = |what: &str| Err(Error::new(ErrorCode::InvalidConfig, what));
        if rate.is_some_and(|rate| !(rate > 0.0 && rate.is_finite())) {
            return wrong("the rate of spout words is a number greater than zero");
        }
        if vocabulary == 0 {
            return wrong("the vocabulary of spout words has at least one word");
        }
        Ok(Words {
            rate,
            total,
            vocabulary,
            seed,
            position: InstanceValue::new("position", START).with_division(|all, instance| {
                all.get(instance.index as usize).copied().unwrap_or(START)
            }),
            clock: None,
            began: None,
            word: String::new(),
        })
    }

    /// Returns the next number of a pseudorandom sequence (splitmix64).
    fn next_random(&mut self) -> u64 {
        let before = self.position.random.unwrap_or(self.seed);
        let mut z = before.wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.position.random = Some(z);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns the time until the next word is due; `None` if it is due now.
    fn wait(&mut self) -> Option<Duration> {
        let (rate, clock) = (self.rate?, self.clock.as_ref()?);
        let due = |emitted: u64| Duration::try_from_secs_f64(emitted as f64 / rate).ok();
        let (now, due) = (clock.now(), due(self.position.emitted)?);
        // A restored spout does not catch up with the time in which it did not run.
        let began = *self.began.get_or_insert(now.saturating_sub(due));
        due.checked_sub(now.saturating_sub(began))
            .filter(|wait| !wait.is_zero())
    }
}

impl Spout for Words {
    fn outputs(&self) -> Outputs {
        Outputs::fields(["word"])
    }

    fn state(&mut self) -> ComponentState<'_> {
        ComponentState::Checkpointed(&mut self.position)
    }

    fn open(&mut self, context: &ComponentContext) -> Outcome {
        let instance = u64::from(context.instance().index);
        self.seed ^= (instance + 1).wrapping_mul(0xd6e8_feb8_6659_fd93);
        self.clock = Some(context.clock().clone());
        self.position.open(context.instance_context());
        Ok(())
    }

    fn next_tuple(&mut self, out: &mut SpoutCollector<'_>) -> Outcome<Next> {
        if self
            .total
            .is_some_and(|total| self.position.emitted >= total)
        {
            return Ok(Next::Done);
        }
        if let Some(wait) = self.wait() {
            return Ok(Next::Wait(wait));
        }
        let mut number = self.next_random() % u64::from(self.vocabulary);
        self.word.clear();
        // Different numbers give different words: the number's digits, lowest first, at least two.
        for place in 0.. {
            if place >= 2 && number == 0 {
                break;
            }
            self.word.push_str(SYLLABLES[(number % 16) as usize]);
            number /= 16;
        }
        out.emit([self.word.as_str()])?;
        self.position.emitted += 1;
        Ok(Next::More)
    }
}
