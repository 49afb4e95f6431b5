//! Commands that are sent in one go, and their answers.

use std::collections::BTreeMap;

use redis::{Connection, ErrorKind, RedisError};

use crate::answers::{expect, is_passing, is_redirection, refusal};
use crate::commands::Commands;
use crate::link::Refused;
use crate::nodes::{NodeName, Nodes, redirected};

/// So often nodes are asked again that send commands elsewhere.
const ROUNDS: usize = 16;

/// Commands, and their answers.
#[derive(Default)]
pub(crate) struct Batch {
    pub commands: Commands,
    /// The number of commands that one server has answered for good.
    answered: usize,
    /// In a cluster, of each command whether it has been answered for good.
    is_answered: Vec<bool>,
    pub refused: Vec<Refused>,
}

impl Batch {
    pub fn clear(&mut self) {
        self.commands.clear();
        self.forget_answers();
    }

    /// Has all commands sent again.
    pub fn forget_answers(&mut self) {
        self.answered = 0;
        self.is_answered.clear();
        self.refused.clear();
    }

    /// Sends commands to a server and hears their answers. After an error it is not known which
    /// were carried out of those that are not answered; nor were all that lie behind the first that
    /// a server can't take at the moment, so that they are sent again with it, in their order.
    pub fn send(&mut self, connection: &mut Connection) -> Result<(), RedisError> {
        connection.send_packed_command(self.commands.bytes_from(self.answered))?;
        let mut passing = None;
        for &record in &self.commands.records()[self.answered..] {
            match refusal(connection.recv_response())? {
                _ if passing.is_some() => {}
                Some(error) if is_passing(&error) => passing = Some(error),
                answer => {
                    self.answered += 1;
                    self.refused.extend(answer.map(|error| Refused {
                        record,
                        reason: error.to_string(),
                    }));
                }
            }
        }
        passing.map_or(Ok(()), Err)
    }

    /// The same with the nodes of a cluster: those of one key in their order. Commands that a node
    /// sends elsewhere follow there, in their order: once it has sent one elsewhere, it does so
    /// with all of the same key.
    pub fn send_to_nodes(&mut self, nodes: &mut Nodes) -> Result<(), RedisError> {
        self.is_answered
            .resize(self.commands.records().len(), false);
        for _ in 0..ROUNDS {
            let shares = self.shares(nodes)?;
            if shares.is_empty() {
                return Ok(());
            }
            for (name, share) in &shares {
                nodes.connection(name)?.send_packed_command(&share.bytes)?;
            }
            let mut elsewhere = Elsewhere::default();
            for (name, share) in &shares {
                self.hear(nodes.connection(name)?, name, share, &mut elsewhere)?;
            }
            for (number, name) in &elsewhere.asked {
                self.follow(nodes.connection(name)?, *number)?;
            }
            if let Some(error) = elsewhere.passing {
                return Err(error);
            }
            if elsewhere.has_moved {
                nodes.refresh()?;
            }
        }
        Err(RedisError::from((
            ErrorKind::Io,
            "the nodes of the cluster send commands from one to the other",
        )))
    }

    /// Divides commands without an answer by nodes.
    fn shares(&self, nodes: &Nodes) -> Result<BTreeMap<NodeName, Share>, RedisError> {
        let mut shares = BTreeMap::<NodeName, Share>::new();
        for (number, command) in self.commands.each().enumerate() {
            if !self.is_answered[number] {
                let share = shares.entry(nodes.node_for(command)?).or_default();
                share.numbers.push(number);
                share.bytes.extend_from_slice(command);
            }
        }
        Ok(shares)
    }

    fn hear(
        &mut self,
        connection: &mut Connection,
        name: &NodeName,
        share: &Share,
        elsewhere: &mut Elsewhere,
    ) -> Result<(), RedisError> {
        let mut is_held = false;
        for &number in &share.numbers {
            match refusal(connection.recv_response())? {
                _ if is_held => {}
                Some(error) if error.code() == Some("MOVED") => elsewhere.has_moved = true,
                Some(error) if error.code() == Some("ASK") => {
                    elsewhere
                        .asked
                        .extend(redirected(&error, name).map(|name| (number, name)));
                }
                Some(error) if is_passing(&error) => {
                    is_held = true;
                    elsewhere.passing = Some(error);
                }
                answer => self.note(number, answer),
            }
        }
        Ok(())
    }

    /// Sends one command to the node that is about to get its slot.
    fn follow(&mut self, connection: &mut Connection, number: usize) -> Result<(), RedisError> {
        let mut frame = Commands::default();
        frame.command("ASKING", &[]);
        connection.send_packed_command(frame.bytes())?;
        let command = self.commands.each().nth(number).unwrap_or_default();
        connection.send_packed_command(command)?;
        expect(connection.recv_response())?;
        match refusal(connection.recv_response())? {
            Some(error) if is_passing(&error) => Err(error),
            Some(error) if is_redirection(&error) => Ok(()),
            answer => {
                self.note(number, answer);
                Ok(())
            }
        }
    }

    fn note(&mut self, number: usize, answer: Option<RedisError>) {
        self.is_answered[number] = true;
        self.refused.extend(answer.map(|error| Refused {
            record: self.commands.records()[number],
            reason: error.to_string(),
        }));
    }
}

/// The commands for one node.
#[derive(Default)]
struct Share {
    numbers: Vec<usize>,
    bytes: Vec<u8>,
}

/// Commands that nodes have not carried out.
#[derive(Default)]
struct Elsewhere {
    has_moved: bool,
    asked: Vec<(usize, NodeName)>,
    passing: Option<RedisError>,
}
