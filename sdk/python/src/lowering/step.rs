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
use super::{Branch, Lowering, Table};
use crate::function_step::FunctionP;
use crate::keyed_step::KeyedStep;
use crate::plan::{
    FunctionForm, FunctionPlan, ProcessPlan, SinkPlan, StepKind, WindowPlan, WindowShape,
};
use crate::python_function::{ArrowFunction, RowsFunction, result_schema};

impl Lowering<'_> {
    /// Adds a step and its outputs.
    pub(super) fn step(
        &mut self,
        index: usize,
        mut inputs: Vec<Branch>,
        kind: StepKind,
    ) -> Result<()> {
        let output = (index, 0);
        if let StepKind::Read { source } = kind {
            let table = self.read(source)?;
            return self.add(output, table, false);
        }
        let input = inputs.pop().ok_or_else(no_input)?;
        let has_time = input.has_time;
        let (table, has_time) = match kind {
            StepKind::Filter {
                condition,
                on_error,
            } => (filter(input, &condition, on_error.into())?, has_time),
            StepKind::Select { columns } => (input.table.select(columns), has_time),
            StepKind::WithColumn { column } => (input.table.with_column(column), has_time),
            StepKind::Drop { names } => (drop_columns(input, &names)?, has_time),
            StepKind::Timestamps {
                time,
                lag_micros,
                idle_micros,
                ahead_micros,
            } => {
                let policy = WatermarkPolicy::out_of_order(Duration::from_micros(lag_micros))
                    .idle_timeout(idle_micros.map(Duration::from_micros))
                    .max_ahead(ahead_micros.map(Duration::from_micros));
                (input.table.with_timestamps(time, policy), true)
            }
            StepKind::Function(plan) => (self.call(input, plan)?, has_time),
            StepKind::Aggregate {
                name,
                keys,
                aggregates,
            } => (input.table.key_by(keys).aggregate(name, aggregates), false),
            StepKind::Window {
                name,
                keys,
                window,
                aggregates,
            } => {
                require_time(has_time)?;
                let windowed = input.table.key_by(keys).window(window_of(&window));
                let (results, late) = windowed.aggregate_and_late(name, aggregates);
                results.schema()?;
                self.add((index, 1), late, true)?;
                (results, true)
            }
            StepKind::Process(plan) => (self.process(input, plan)?, has_time),
            StepKind::Rebalance => (input.table.rebalance("rebalance"), has_time),
            StepKind::Write { sink, has_lines } => {
                let SinkPlan::Files(plan) = sink;
                return write_files(input, plan, has_lines);
            }
            StepKind::Collect => {
                let stream = input.table.into_stream();
                let rows = stream.extend_with::<RecordBatch>("batches", supplier(|| PackP));
                self.compiled.collected.push(rows.collect());
                return Ok(());
            }
            StepKind::Discard => {
                let stream = input.table.into_stream();
                stream.write_to_local(discard());
                return Ok(());
            }
            StepKind::Read { .. } => return Err(no_input()),
        };
        self.add(output, table, has_time)
    }

    /// Calls a function with each batch.
    fn call(&self, input: Branch, plan: FunctionPlan) -> Result<Table> {
        let FunctionPlan { name, output, .. } = plan;
        let policy: OnError = plan.on_error.into();
        let function = self.function(plan.function)?;
        let schema = result_schema(&input.schema, &output);
        let from = Arc::clone(&input.schema);
        let kind = name.clone();
        let make: Arc<dyn ProcessorSupplier> = match plan.form {
            FunctionForm::Rows => {
                RowsFunction::new(function.clone(), &from, output.clone())?;
                Arc::new(move |_: Instance| -> Result<Box<dyn Processor>> {
                    let rows = RowsFunction::new(function.clone(), &from, output.clone())?;
                    Ok(Box::new(FunctionP::new(name.clone(), rows, policy)))
                })
            }
            FunctionForm::Batch => Arc::new(move |_: Instance| -> Result<Box<dyn Processor>> {
                let arrow = ArrowFunction::new(function.clone(), name.clone(), &from, &output);
                Ok(Box::new(FunctionP::new(name.clone(), arrow, policy)))
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
        Ok(keyed.custom(plan.name, schema, move |key| step.processor(key)))
    }
}

fn no_input() -> Error {
    Error::new(ErrorCode::InvalidJob, "a step of the plan has no input")
        .hint("install one version of the package ardea")
}

fn require_time(has_time: bool) -> Result<()> {
    match has_time {
        true => Ok(()),
        false => Err(Error::new(
            ErrorCode::InvalidJob,
            "windows need records with event time",
        )
        .hint("assign it before, as in with_timestamps(\"time\", lag=\"5s\")")),
    }
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

fn window_of(plan: &WindowPlan) -> Window {
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
