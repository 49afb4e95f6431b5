//! Decoding of the records of files into batches.

use std::sync::Arc;

use ardea_connectors::format::{BatchDecode, Csv, Decode, Framing};
use ardea_core::Result;
use arrow_schema::SchemaRef;
use serde::de::IgnoredAny;

use crate::batch::ColumnBatch;
use crate::decode::{ColumnDecoder, FieldPath, header_names};

/// The format of the records.
#[derive(Clone, Debug)]
pub(super) enum FileFormat {
    /// JSON lines, with the path of each column.
    Json(Vec<FieldPath>),
    /// CSV with this delimiter. The format of rows checks the header of each file.
    Csv(Csv, u8),
}

/// A decoder from the records of files to batches of columns.
pub(super) struct FileDecoder {
    schema: SchemaRef,
    format: FileFormat,
    batch_rows: usize,
    /// The decoder of the present file; `None` before the first record, or its header.
    columns: Option<ColumnDecoder>,
}

impl FileDecoder {
    /// Creates a decoder into columns of `schema`.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`](ardea_core::ErrorCode::InvalidJob) if the type of a column cannot
    /// be decoded from text, or two paths overlap.
    pub(super) fn new(schema: SchemaRef, format: FileFormat, batch_rows: usize) -> Result<Self> {
        let of = Arc::clone(&schema);
        match &format {
            FileFormat::Json(paths) => ColumnDecoder::json_at(of, paths)?,
            FileFormat::Csv(_, delimiter) => {
                let names: Vec<_> = of.fields().iter().map(|it| it.name().clone()).collect();
                ColumnDecoder::csv_with_names(of, *delimiter, &names)?
            }
        };
        Ok(FileDecoder {
            schema,
            format,
            batch_rows,
            columns: None,
        })
    }

    /// Reads the header of a file.
    fn read_header(&mut self, frame: &[u8]) -> Result<(), String> {
        let FileFormat::Csv(csv, delimiter) = &mut self.format else {
            return Ok(());
        };
        let mut checked = csv.clone();
        let _: Option<IgnoredAny> = checked.decode(frame)?;
        if Decode::<IgnoredAny>::awaits_header(&checked) {
            return Ok(());
        }
        let text = |error: ardea_core::Error| error.to_string();
        let names = header_names(frame, *delimiter).map_err(text)?;
        match &mut self.columns {
            Some(columns) => columns.set_csv_names(*delimiter, &names),
            none => ColumnDecoder::csv_with_names(Arc::clone(&self.schema), *delimiter, &names)
                .map(|decoder| *none = Some(decoder.batch_rows(self.batch_rows))),
        }
        .map_err(text)?;
        *csv = checked;
        Ok(())
    }
}

impl Clone for FileDecoder {
    fn clone(&self) -> Self {
        FileDecoder {
            schema: Arc::clone(&self.schema),
            format: self.format.clone(),
            batch_rows: self.batch_rows,
            columns: None,
        }
    }
}

impl Decode<()> for FileDecoder {
    fn framing(&self) -> Framing {
        match &self.format {
            FileFormat::Json(_) => Framing::Lines,
            FileFormat::Csv(csv, _) => Decode::<IgnoredAny>::framing(csv),
        }
    }

    fn begin(&mut self) {
        if let FileFormat::Csv(csv, _) = &mut self.format {
            Decode::<IgnoredAny>::begin(csv);
        }
    }

    fn needs_beginning(&self) -> bool {
        matches!(self.format, FileFormat::Csv(..))
    }

    fn fields(&self) -> Option<usize> {
        match &self.format {
            FileFormat::Json(_) => None,
            FileFormat::Csv(csv, _) => Decode::<IgnoredAny>::fields(csv),
        }
    }

    fn awaits_header(&self) -> bool {
        match &self.format {
            FileFormat::Json(_) => false,
            FileFormat::Csv(csv, _) => Decode::<IgnoredAny>::awaits_header(csv),
        }
    }

    #[inline]
    fn decode(&mut self, frame: &[u8]) -> Result<Option<()>, String> {
        if self.awaits_header() {
            return self.read_header(frame).map(|()| None);
        }
        let columns = match (&mut self.columns, &self.format) {
            (Some(columns), _) => columns,
            (none, FileFormat::Json(paths)) => {
                let decoder = ColumnDecoder::json_at(Arc::clone(&self.schema), paths);
                let decoder = decoder.map_err(|error| error.to_string())?;
                none.insert(decoder.batch_rows(self.batch_rows))
            }
            (None, FileFormat::Csv(..)) => return Err("its file has no header".to_string()),
        };
        match columns.decode_record(frame) {
            Ok(has_record) => Ok(has_record.then_some(())),
            Err(reason) => Err(reason.into_string()),
        }
    }

    fn decode_beginning(&mut self, frame: &[u8]) -> Result<bool, String> {
        match self.awaits_header() {
            true => self.read_header(frame).map(|()| false),
            false => Ok(true),
        }
    }
}

impl BatchDecode for FileDecoder {
    type Batch = ColumnBatch;

    fn batch_rows(&self) -> usize {
        self.batch_rows
    }

    fn take_batch(&mut self) -> Result<Option<ColumnBatch>> {
        match &mut self.columns {
            Some(columns) if columns.rows() > 0 => {
                Ok(Some(ColumnBatch::untimed(columns.finish()?)))
            }
            _ => Ok(None),
        }
    }
}
