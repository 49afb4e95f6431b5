//! The form of plans: the steps of a job as plain data.

mod systems;

use ardea_columns::{AggregateExpr, Expr, TopRecords};
use ardea_core::{Error, ErrorCode, OnError, Result};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use serde::Deserialize;

pub(crate) use systems::*;

/// The version of the form of plans that this program reads.
const VERSION: u32 = 1;

/// The output of a step: the index of the step, and the number of its output.
pub(crate) type Output = (usize, usize);

/// The description of a job.
#[derive(Deserialize)]
pub(crate) struct Plan {
    version: u32,
    /// The name of the job.
    pub name: String,
    /// The command line that describes the same job in the process of a function; empty if no
    /// function has one.
    #[serde(default)]
    pub words: Vec<String>,
    /// The steps; each reads outputs of earlier ones.
    pub steps: Vec<PlanStep>,
}

impl Plan {
    /// Reads a plan.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`] if the text is no plan of this version.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let plan: Plan = serde_json::from_str(text).map_err(|error| {
            Error::new(ErrorCode::InvalidJob, "the plan of the job cannot be read")
                .because(error)
                .hint("install one version of the package ardea")
        })?;
        if plan.version != VERSION {
            let what = format!(
                "the plan of the job has the form {}, and not {VERSION}",
                plan.version
            );
            return Err(Error::new(ErrorCode::InvalidJob, what)
                .hint("install one version of the package ardea"));
        }
        Ok(plan)
    }
}

/// A step with its inputs.
#[derive(Deserialize)]
pub(crate) struct PlanStep {
    /// The outputs that the step reads.
    pub inputs: Vec<Output>,
    /// The file and line of the user's code that adds the step.
    pub place: String,
    /// The kind of step.
    #[serde(flatten)]
    pub kind: StepKind,
}

/// The kind of a step, with its options. A function or collection is given by its index.
#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum StepKind {
    /// Reads from a source.
    Read {
        source: SourcePlan,
    },
    Filter {
        condition: Expr,
        on_error: ErrorPolicy,
    },
    Select {
        columns: Vec<Expr>,
    },
    WithColumn {
        column: Expr,
    },
    /// Removes columns.
    Drop {
        names: Vec<String>,
    },
    Timestamps {
        time: Expr,
        lag_micros: u64,
        idle_micros: Option<u64>,
        ahead_micros: Option<u64>,
    },
    /// Uses the event times of the source.
    SourceTime,
    Function(FunctionPlan),
    /// Merges two streams with the same columns.
    Merge,
    Join(JoinPlan),
    Aggregate {
        name: String,
        keys: Vec<String>,
        aggregates: Vec<AggregateExpr>,
    },
    /// Emits each record with the aggregates of its key so far.
    Rolling {
        name: String,
        keys: Vec<String>,
        aggregates: Vec<AggregateExpr>,
        ttl_micros: Option<u64>,
    },
    /// Emits the first record of each key, or those that are a time apart.
    Distinct {
        name: String,
        keys: Vec<String>,
        within_micros: Option<u64>,
    },
    /// Emits the greatest records of each key, or of each key and window.
    Top {
        name: String,
        keys: Vec<String>,
        window: Option<WindowPlan>,
        top: TopRecords,
    },
    /// Aggregates windows. Output 1 has the late records.
    Window {
        name: String,
        keys: Vec<String>,
        window: WindowPlan,
        aggregates: Vec<AggregateExpr>,
    },
    Process(ProcessPlan),
    Rebalance,
    Write {
        sink: SinkPlan,
        /// True if the records are lines of text in their only column.
        has_lines: bool,
    },
    Collect,
    /// Drops the records.
    Discard,
}

/// A join of a stream with another one, the second input.
#[derive(Deserialize, Debug)]
pub(crate) struct JoinPlan {
    pub name: String,
    pub keys: Vec<String>,
    pub other_keys: Vec<String>,
    pub by: JoinKind,
    /// True if a record without a match is emitted, with null.
    pub is_outer: bool,
}

/// The condition of a join besides equal keys.
#[derive(Deserialize, Debug)]
#[serde(rename_all = "snake_case")]
pub(crate) enum JoinKind {
    /// None: the other stream is a table, which is read first.
    Table,
    /// One window.
    Window(WindowPlan),
    /// A distance of event times.
    Interval {
        lower_micros: i64,
        upper_micros: i64,
    },
}

/// A step that calls a function with each batch.
#[derive(Deserialize, Debug)]
pub(crate) struct FunctionPlan {
    pub name: String,
    /// The index of the function.
    pub function: usize,
    pub form: FunctionForm,
    pub output: FunctionColumns,
    pub on_error: ErrorPolicy,
    /// True if calls may wait, so that the step needs a thread of its own.
    pub blocks: bool,
    /// The options of processes of the step; `None` if it runs in the process of the job.
    #[serde(default)]
    pub process: Option<ProcessOptions>,
}

/// The options of the processes of a step.
#[derive(Deserialize, Clone, Copy, Debug)]
pub(crate) struct ProcessOptions {
    /// The time after which a process without an answer is killed.
    pub answer_timeout: Option<Micros>,
    /// The most resident memory.
    pub memory_bytes: Option<u64>,
    /// The number of deaths after which a record becomes a dead letter.
    pub deaths_per_record: Option<u32>,
}

/// A step that calls a function with state for each key.
#[derive(Deserialize, Debug)]
pub(crate) struct ProcessPlan {
    pub name: String,
    pub keys: Vec<String>,
    /// The index of the function.
    pub function: usize,
    /// The columns of the results.
    pub fields: FieldList,
    pub ttl_micros: Option<u64>,
    pub on_error: ErrorPolicy,
    /// The options of processes of the step; `None` if it runs in the process of the job.
    #[serde(default)]
    pub process: Option<ProcessOptions>,
}

/// The treatment of records on which a step fails.
#[derive(Deserialize, Clone, Copy, Debug)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ErrorPolicy {
    Fail,
    DeadLetter,
    Drop,
}

impl From<ErrorPolicy> for OnError {
    fn from(policy: ErrorPolicy) -> Self {
        match policy {
            ErrorPolicy::Fail => OnError::Fail,
            ErrorPolicy::DeadLetter => OnError::DeadLetter,
            ErrorPolicy::Drop => OnError::Drop,
        }
    }
}

/// The form in which a function gets the records of a batch.
#[derive(Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FunctionForm {
    /// A list of dictionaries, or of the bytes of objects.
    Rows,
    /// An Arrow batch.
    Batch,
}

/// The columns of a function's results.
#[derive(Deserialize, Clone, Debug)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FunctionColumns {
    /// Those of the input.
    Same(()),
    /// Those of the input, and these behind them.
    Append(FieldList),
    /// These.
    Columns(FieldList),
}

/// The fields of a schema: name, type and nullability.
#[derive(Deserialize, Clone, Debug)]
pub(crate) struct FieldList(Vec<(String, DataType, bool)>);

impl FieldList {
    /// Returns the fields.
    pub(crate) fn fields(&self) -> impl Iterator<Item = Field> {
        let fields = self.0.iter();
        fields.map(|(name, kind, is_nullable)| Field::new(name, kind.clone(), *is_nullable))
    }

    /// Returns the schema of these fields.
    pub(crate) fn schema(&self) -> SchemaRef {
        Schema::new(self.fields().collect::<Vec<_>>()).into()
    }
}

/// A source.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SourcePlan {
    Files(FileSourcePlan),
    Kafka(Box<KafkaSourcePlan>),
    Nats(Box<NatsSourcePlan>),
    Postgres(Box<PostgresSourcePlan>),
    Tcp(TcpSourcePlan),
    Stdin(MessagePlan),
    Generate(GeneratePlan),
    /// The values of a collection.
    Items {
        fields: FieldList,
        values: usize,
        batch_rows: usize,
        /// The number of times that the values are read.
        repeat: usize,
    },
}

impl SourcePlan {
    /// Returns the name of the system.
    pub(crate) fn system(&self) -> &'static str {
        match self {
            SourcePlan::Files(_) => "files",
            SourcePlan::Kafka(_) => "kafka",
            SourcePlan::Nats(_) => "nats",
            SourcePlan::Postgres(_) => "postgres",
            SourcePlan::Tcp(_) => "tcp",
            SourcePlan::Stdin(_) => "stdin",
            SourcePlan::Generate(_) => "generate",
            SourcePlan::Items { .. } => "items",
        }
    }
}

impl SinkPlan {
    /// Returns the name of the system.
    pub(crate) fn system(&self) -> &'static str {
        match self {
            SinkPlan::Files(_) => "files",
            SinkPlan::Kafka(_) => "kafka",
            SinkPlan::Nats(_) => "nats",
            SinkPlan::Postgres(_) => "postgres",
            SinkPlan::Redis(_) => "redis",
            SinkPlan::Tcp(_) => "tcp",
            SinkPlan::Stdout(_) => "stdout",
        }
    }
}

/// The format of files.
#[derive(Deserialize, Clone, Copy, Debug)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FileFormat {
    Json,
    Csv,
    Parquet,
}

/// Files as a source.
#[derive(Deserialize, Debug)]
pub(crate) struct FileSourcePlan {
    pub format: FileFormat,
    pub path: String,
    pub columns: Option<Vec<String>>,
    pub fields: Option<FieldList>,
    pub suffix: Option<String>,
    pub in_order: bool,
    pub delimiter: Option<u8>,
    pub on_error: ErrorPolicy,
}

/// A sink.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SinkPlan {
    Files(FileSinkPlan),
    Kafka(Box<KafkaSinkPlan>),
    Nats(Box<NatsSinkPlan>),
    Postgres(Box<PostgresSinkPlan>),
    Redis(Box<RedisSinkPlan>),
    Tcp(TcpSinkPlan),
    Stdout(OutgoingPlan),
}

/// Files as a sink.
#[derive(Deserialize, Debug)]
pub(crate) struct FileSinkPlan {
    pub format: FileFormat,
    pub path: String,
    pub delimiter: Option<u8>,
    pub rotate_bytes: Option<u64>,
    pub rotate_micros: Option<u64>,
    pub rotates_with_epochs: bool,
}

/// Windows with their options.
#[derive(Deserialize, Debug)]
pub(crate) struct WindowPlan {
    pub shape: WindowShape,
    pub offset_micros: u64,
    pub lateness_micros: u64,
}

/// The kind of windows.
#[derive(Deserialize, Debug)]
#[serde(rename_all = "snake_case")]
pub(crate) enum WindowShape {
    Sliding {
        length_micros: u64,
        slide_micros: u64,
    },
    Session {
        gap_micros: u64,
    },
    Daily {
        zone: String,
    },
    Monthly {
        zone: String,
    },
}
