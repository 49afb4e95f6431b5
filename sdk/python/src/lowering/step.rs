//! Steps of plans.

use std::sync::Arc;
use std::time::Duration;

use ardea_columns::{BoundExpr, ColumnFilterP, Columns, Expr};
use ardea_core::{
    Error, ErrorCode, Instance, OnError, Processor, ProcessorSupplier, Result, WatermarkPolicy,
    supplier,
};
use ardea_pipeline::Window;
use arrow_array::RecordBatch;
use arrow_schema::Schema;

use super::batch_rows::{PackP, discard};
use super::file_sink::write_files;
use super::join::{join, merge};
use super::{Branch, EventTime, Lowering, SourceTable, Table};
use crate::connectors;
use crate::function_step::FunctionP;
use crate::keyed_step::KeyedStep;
use crate::plan::{
    FunctionForm, FunctionPlan, ProcessPlan, SinkPlan, StepKind, WindowPlan, WindowShape,
};
use crate::process_function::command_of;
use crate::python_function::{ArrowFunction, RowsFunction, result_schema};

impl Lowering<'_> {
    /// Adds a step and its outputs.
    pub(super) fn step(&mut self, index: usize, inputs: Vec<Branch>, kind: StepKind) -> Result<()> {
        let output = (index, 0);
        let mut inputs = inputs.into_iter();
        let mut next = || inputs.next().ok_or_else(no_input);
        let added = match kind {
            StepKind::Read { source } => self.read(source)?,
            StepKind::Join(plan) => join(next()?, next()?, plan)?,
            StepKind::Merge => merge(next()?, next()?)?,
            StepKind::Write { sink, has_lines } => {
                return match sink {
                    SinkPlan::Files(plan) => write_files(next()?, plan, has_lines),
                    system => connectors::write(next()?, system, has_lines),
                };
            }
            StepKind::Collect => {
                let stream = next()?.table.into_stream();
                let rows = stream.extend_with::<RecordBatch>("batches", supplier(|| PackP));
                self.compiled.collected.push(rows.collect());
                return Ok(());
            }
            StepKind::Discard => {
                next()?.table.into_stream().write_to_local(discard());
                return Ok(());
            }
            StepKind::Window {
                name,
                keys,
                window,
                aggregates,
            } => {
                let input = next()?;
                require_time(input.time)?;
                let is_bounded = input.is_bounded;
                let windowed = input.table.key_by(keys).window(window_of(&window));
                let (results, late) = windowed.aggregate_and_late(name, aggregates);
                results.schema()?;
                let [results, late] = [results, late].map(|table| SourceTable {
                    table,
                    time: EventTime::Assigned,
                    is_bounded,
                });
                self.add((index, 1), late)?;
                results
            }
            kind => self.step_on_one(next()?, kind)?,
        };
        self.add(output, added)
    }

    /// Adds a step with one input and one output.
    fn step_on_one(&self, input: Branch, kind: StepKind) -> Result<SourceTable> {
        let (is_bounded, before) = (input.is_bounded, input.time);
        let micros = Duration::from_micros;
        let (table, time) = match kind {
            StepKind::Filter {
                condition,
                on_error,
            } => (filter(input, &condition, on_error.into())?, before),
            StepKind::Select { columns } => (input.table.select(columns), before),
            StepKind::WithColumn { column } => (input.table.with_column(column), before),
            StepKind::Drop { names } => (drop_columns(input, &names)?, before),
            StepKind::Timestamps {
                time,
                lag_micros,
                idle_micros,
                ahead_micros,
            } => {
                let policy = WatermarkPolicy::out_of_order(micros(lag_micros))
                    .idle_timeout(idle_micros.map(micros))
                    .max_ahead(ahead_micros.map(micros));
                let timed = input.table.with_timestamps(time, policy);
                (timed, EventTime::Assigned)
            }
            StepKind::SourceTime if before == EventTime::Absent => return Err(no_source_time()),
            StepKind::SourceTime => (input.table, EventTime::Assigned),
            StepKind::Function(plan) => (self.call(input, plan)?, before),
            StepKind::Aggregate { name, .. } if !is_bounded => return Err(no_end(&name)),
            StepKind::Aggregate {
                name,
                keys,
                aggregates,
            } => {
                let results = input.table.key_by(keys).aggregate(name, aggregates);
                (results, EventTime::Absent)
            }
            StepKind::Rolling {
                name,
                keys,
                aggregates,
                ttl_micros,
            } => {
                let keyed = input.table.key_by(keys);
                let results = match ttl_micros {
                    None => keyed.rolling(name, aggregates),
                    Some(ttl) => {
                        require_time(before)?;
                        keyed.rolling_with_ttl(name, micros(ttl), aggregates)
                    }
                };
                (results, before)
            }
            StepKind::Distinct {
                name,
                keys,
                within_micros,
            } => {
                let keyed = input.table.key_by(keys);
                let results = match within_micros {
                    None => keyed.distinct(name),
                    Some(within) => {
                        require_time(before)?;
                        keyed.distinct_within(name, micros(within))
                    }
                };
                (results, before)
            }
            StepKind::Top {
                name, window: None, ..
            } if !is_bounded => return Err(no_end(&name)),
            StepKind::Top {
                name,
                keys,
                window,
                top,
            } => {
                let keyed = input.table.key_by(keys);
                match window {
                    None => (keyed.top(name, top), EventTime::Absent),
                    Some(window) => {
                        require_time(before)?;
                        let windowed = keyed.window(window_of(&window));
                        (windowed.top(name, top), EventTime::Assigned)
                    }
                }
            }
            StepKind::Process(plan) => (self.process(input, plan)?, before),
            StepKind::Rebalance => (input.table.rebalance("rebalance"), before),
            _ => return Err(no_input()),
        };
        Ok(SourceTable {
            table,
            time,
            is_bounded,
        })
    }

    /// Calls a function with each batch.
    fn call(&self, input: Branch, plan: FunctionPlan) -> Result<Table> {
        if let Some(options) = &plan.process {
            let schema = result_schema(&input.schema, &plan.output);
            let command = command_of(plan.function, plan.on_error, options, &self.words)?;
            return Ok(input.table.in_process(command, schema));
        }
        let FunctionPlan { name, output, .. } = plan;
        let policy: OnError = plan.on_error.into();
        let function = self.function(plan.function)?;
        let schema = result_schema(&input.schema, &output);
        let from = Arc::clone(&input.schema);
        let has_time = input.time == EventTime::Assigned;
        let kind = name.clone();
        let make: Arc<dyn ProcessorSupplier> = match plan.form {
            FunctionForm::Rows => {
                RowsFunction::new(function.clone(), &from, output.clone())?;
                Arc::new(move |_: Instance| -> Result<Box<dyn Processor>> {
                    let rows = RowsFunction::new(function.clone(), &from, output.clone())?;
                    Ok(Box::new(FunctionP::new(
                        name.clone(),
                        rows,
                        policy,
                        has_time,
                    )))
                })
            }
            FunctionForm::Batch => Arc::new(move |_: Instance| -> Result<Box<dyn Processor>> {
                let arrow = ArrowFunction::new(function.clone(), name.clone(), &from, &output);
                Ok(Box::new(FunctionP::new(
                    name.clone(),
                    arrow,
                    policy,
                    has_time,
                )))
            }),
        };
        let stream = input.table.into_stream();
        let results = match plan.blocks {
            true => stream.extend_blocking(&kind, make),
            false => stream.extend_with(&kind, make),
        };
        Ok(Columns::from_stream(results, schema))
    }

    /// Calls a function with state for each key.
    fn process(&self, input: Branch, plan: ProcessPlan) -> Result<Table> {
        let step = KeyedStep {
            name: plan.name.clone(),
            function: self.function(plan.function)?,
            input: Arc::clone(&input.schema),
            output: plan.fields.schema(),
            ttl: plan.ttl_micros.map(Duration::from_micros),
            policy: plan.on_error.into(),
        };
        step.check()?;
        let schema = Arc::clone(&step.output);
        let keyed = input.table.key_by(plan.keys);
        if let Some(options) = &plan.process {
            let command = command_of(plan.function, plan.on_error, options, &self.words)?;
            return Ok(keyed.in_process(plan.name, command, schema));
        }
        Ok(keyed.custom(plan.name, schema, move |key| step.processor(key)))
    }
}

fn no_input() -> Error {
    Error::new(ErrorCode::InvalidJob, "a step of the plan has no input")
        .hint("install one version of the package ardea")
}

pub(super) fn require_time(time: EventTime) -> Result<()> {
    let hint = match time {
        EventTime::Assigned => return Ok(()),
        EventTime::OfSource => "use the times of the source: with_source_time()",
        EventTime::Absent => "assign it before, as in with_timestamps(\"time\", lag=\"5s\")",
    };
    let what = "the step needs records with event time, as windows do";
    Err(Error::new(ErrorCode::InvalidJob, what).hint(hint))
}

#[cold]
fn no_source_time() -> Error {
    let what = "the source gives its records no event time";
    Error::new(ErrorCode::InvalidJob, what)
        .hint("assign it, as in with_timestamps(\"time\", lag=\"5s\")")
}

#[cold]
fn no_end(name: &str) -> Error {
    let what = format!("the step {name:?} emits its results at the end, and the stream has none");
    Error::new(ErrorCode::InvalidJob, what).hint("use windows, or end the source")
}

fn filter(input: Branch, condition: &Expr, policy: OnError) -> Result<Table> {
    let bound: BoundExpr = condition.bind_condition(&input.schema)?;
    let make = supplier(move || ColumnFilterP::new(bound.clone()).on_error(policy));
    let stream = input.table.into_stream().extend_with("filter", make);
    Ok(Columns::from_stream(stream, input.schema))
}

fn drop_columns(input: Branch, names: &[String]) -> Result<Table> {
    for name in names {
        // Reports an unknown name with the known ones.
        Expr::Column(name.clone()).bind(&input.schema)?;
    }
    let schema: &Schema = &input.schema;
    let fields = schema.fields().iter().map(|field| field.name());
    let kept = fields.filter(|name| !names.contains(name));
    let kept: Vec<Expr> = kept.map(|name| Expr::Column(name.clone())).collect();
    Ok(input.table.select(kept))
}

pub(super) fn window_of(plan: &WindowPlan) -> Window {
    let micros = |micros: &u64| Duration::from_micros(*micros);
    let window = match &plan.shape {
        WindowShape::Sliding {
            length_micros,
            slide_micros,
        } => Window::sliding(micros(length_micros), micros(slide_micros)),
        WindowShape::Session { gap_micros } => Window::session(micros(gap_micros)),
        WindowShape::Daily { zone } => Window::daily(zone),
        WindowShape::Monthly { zone } => Window::monthly(zone),
    };
    window
        .offset(micros(&plan.offset_micros))
        .allowed_lateness(micros(&plan.lateness_micros))
}
