//! The output of a file sink in a bucket.

use std::path::PathBuf;
use std::sync::Arc;

use ardea_bucket::RequestError;
use ardea_core::{
    Epoch, Error, ErrorCode, Instance, InstanceContext, JobSignals, Progress, RestoredState,
    Result, SnapshotRequest, SnapshotWriter, StateShape, Timestamp,
};
use object_store::multipart::MultipartStore;
use object_store::path::Path as ObjectPath;

use super::BucketFiles;
use super::output_state::{OutputState, PendingObject, UploadState};
use super::staging::StagingArea;
use super::upload::{ObjectUpload, UploadClient};
use crate::files::claim::Claim;
use crate::files::output::{FileOutput, OutputFile, ResumedFile, ResumedOutput};
use crate::files::output_content::OutputContent;
use crate::files::plan::Plan;

/// The output of an instance in a bucket. An object exists once it is published, which happens at
/// the commit of its epoch in a job with state. Its parts are in the store before.
pub(in crate::files) struct BucketOutput {
    files: Arc<BucketFiles>,
    plan: Plan,
    instance: Instance,
    /// Prevents other sinks of the process from writing to the output.
    _claim: Claim,
    client: Option<UploadClient>,
    number: u64,
    state: OutputState,
    keeps_state: bool,
    /// True if an object needs an end to be complete.
    has_end: bool,
}

impl BucketOutput {
    pub fn new(files: Arc<BucketFiles>, plan: Plan, instance: Instance, claim: Claim) -> Self {
        BucketOutput {
            files,
            plan,
            instance,
            _claim: claim,
            client: None,
            number: 0,
            state: OutputState::new(instance),
            keeps_state: false,
            has_end: false,
        }
    }

    fn client(&self) -> Result<UploadClient> {
        let what = "the output of a bucket was not initialized";
        self.client
            .clone()
            .ok_or_else(|| Error::new(ErrorCode::Internal, what))
    }

    /// Checks that the bucket takes uploads: begins one, and aborts it. Does not wait for a store
    /// that is unavailable for twenty seconds.
    fn probe(&self, client: &UploadClient, object: &ObjectPath) -> Result<()> {
        let (store, probed) = (client.bucket.store(), object.clone());
        let outcome = client.bucket.wait(async move {
            let upload = store.create_multipart(&probed).await?;
            // An upload that cannot be aborted has no content.
            let _ = store.abort_multipart(&probed, &upload).await;
            Ok(())
        })?;
        outcome.map_err(|error| client.unwritten(object, RequestError::Refused(error)))
    }

    /// Returns the path of the next object. Numbered objects have the number of the run in their
    /// names, and so replace no other object.
    fn next_path(&mut self) -> PathBuf {
        if !self.plan.rotates() {
            return self
                .plan
                .file_of_generation(self.instance, self.state.generation);
        }
        let number = self.number;
        self.number += 1;
        let name = format!("{:016x}-{number:06}", self.state.run);
        self.plan.numbered(self.instance, &name)
    }

    fn upload_at(&self, path: PathBuf) -> Result<ObjectUpload> {
        let object = self.files.object_of(&path)?;
        let area = StagingArea::of_run(&object, self.state.run);
        let compression = self.plan.compression;
        let place = (object, area);
        Ok(ObjectUpload::new(self.client()?, path, place, compression))
    }

    /// Checks that no restored instance has to continue an object of a format that needs an end:
    /// the encoder would have to read it, and an object cannot be read before it is complete.
    fn check_format(&self) -> Result<()> {
        if !self.has_end || !self.keeps_state || self.plan.ends_with_every_epoch() {
            return Ok(());
        }
        let path = self.plan.path.display();
        let what = format!("a job with state cannot continue {path} in a bucket after a failure");
        Err(Error::new(ErrorCode::InvalidConfig, what)
            .because("files of this format, such as Parquet, are continued by reading them")
            .hint("end the files with each epoch: rotate_with_epochs() without a minimum, with epochs that are long enough for useful files; or write to a shared folder, or without a guarantee"))
    }

    /// Returns the upload of a snapshot.
    fn resumed(&self, stored: UploadState, tail: Vec<u8>) -> Result<ObjectUpload> {
        let upload = self.upload_at(PathBuf::from(stored.path))?;
        let upload = upload.resumed(stored.staged, tail, stored.written);
        Ok(upload.with_head(stored.head.into_bytes()))
    }
}

impl FileOutput for BucketOutput {
    type File = ObjectUpload;

    fn init(&mut self, context: &InstanceContext, has_end: bool) -> Result<()> {
        self.has_end = has_end;
        self.keeps_state = context.guarantee.keeps_state();
        self.check_format()?;
        let client = UploadClient {
            bucket: self.files.client()?,
            signals: Arc::<JobSignals>::clone(&context.signals),
        };
        let path = self.plan.file_of_generation(self.instance, 0);
        self.probe(&client, &self.files.object_of(&path)?)?;
        self.client = Some(client);
        Ok(())
    }

    fn begins_at_start(&self) -> bool {
        !self.plan.rotates() && !self.keeps_state
    }

    fn begin(&mut self) -> Result<ObjectUpload> {
        self.state.has_begun = true;
        let path = self.next_path();
        self.upload_at(path)
    }

    fn finish(&mut self, file: Option<ObjectUpload>) -> Result<()> {
        let Some(mut file) = file else {
            return Ok(());
        };
        file.end()?;
        match self.keeps_state {
            true => {
                self.state.pending.push(PendingObject::new(file));
                Ok(())
            }
            false => file.publish(),
        }
    }

    fn discard(&mut self, file: ObjectUpload) {
        // The next attempt of a job with state may continue the upload.
        if !self.keeps_state {
            file.abort();
        }
    }

    fn keeps_state(&self) -> bool {
        self.keeps_state
    }

    fn owes_file(&self) -> bool {
        self.keeps_state && !self.state.has_begun && !self.plan.rotates()
    }

    fn end(&mut self) {
        self.state.has_ended = true;
    }

    fn check(&self) -> Result<()> {
        Ok(())
    }

    fn settle(&mut self, open: Option<&mut ObjectUpload>) -> Result<Progress> {
        let pending = self.state.pending.iter_mut().map(|it| &mut it.upload);
        for upload in pending.chain(open) {
            if !upload.settle()? {
                return Ok(Progress::NONE);
            }
        }
        Ok(Progress::DONE)
    }

    fn take_snapshot(
        &mut self,
        snapshot: SnapshotRequest,
        open: Option<(&ObjectUpload, Timestamp)>,
    ) -> Result<()> {
        match self.keeps_state {
            true => self.state.take_snapshot(snapshot, open, self.number),
            false => Ok(()),
        }
    }

    fn states() -> Vec<StateShape> {
        OutputState::states()
    }

    fn write_snapshot(
        &mut self,
        writer: &mut SnapshotWriter<'_>,
        _: Option<&ObjectUpload>,
    ) -> Result<Progress> {
        match self.keeps_state {
            true => self.state.write_snapshot(writer),
            false => Ok(Progress::DONE),
        }
    }

    fn restore(&mut self, state: &mut RestoredState<'_>) -> Result<()> {
        self.state.restore(state)
    }

    fn resume(&mut self, epoch: Epoch) -> Result<Option<ResumedOutput<ObjectUpload>>> {
        let Some(resumed) = self.state.resume()? else {
            return Ok(None);
        };
        self.number = resumed.number;
        let path = self.plan.file_of_generation(self.instance, 0);
        let (object, client) = (self.files.object_of(&path)?, self.client()?);
        for run in resumed.runs {
            StagingArea::of_run(&object, run).clean(&client, &resumed.kept)?;
        }
        for stored in resumed.pending {
            let upload = self.resumed(stored, Vec::new())?;
            self.state
                .pending
                .push(PendingObject::of_epoch(upload, epoch));
        }
        let mut open = None;
        for (stored, tail) in resumed.open {
            let begun = stored.begun_ms.map(Timestamp::from_millis);
            let mut upload = self.resumed(stored, tail)?;
            if self.has_end {
                return Err(other_format(&upload));
            }
            if resumed.is_same {
                open = Some(ResumedFile {
                    begun,
                    content: OutputContent::of_object(first_line(&upload)),
                    file: upload,
                });
            } else {
                // After a rescale no instance continues the object: it is published as it is.
                upload.end()?;
                self.state.pending.push(PendingObject::new(upload));
            }
        }
        Ok(Some(ResumedOutput {
            open,
            interrupted: Vec::new(),
        }))
    }

    fn publish(&mut self, epoch: Epoch) -> Result<()> {
        while let Some(at) = self.state.pending.iter().position(|it| it.is_due(epoch)) {
            self.state.pending[at].upload.publish()?;
            self.state.pending.remove(at);
        }
        Ok(())
    }

    fn is_waiting(&self) -> bool {
        !self.state.pending.is_empty()
    }
}

/// Returns the first line of an object that is continued; `None` if it is not known.
fn first_line(upload: &ObjectUpload) -> Option<Vec<u8>> {
    let head = upload.head();
    (upload.written() == 0 || !head.is_empty()).then(|| head.to_vec())
}

/// Returns the error of an object that was begun in a format without an end.
fn other_format(upload: &ObjectUpload) -> Error {
    let what = format!("cannot go on with {}", upload.name().display());
    Error::new(ErrorCode::WriteFailed, what)
        .because("it was begun in another format")
        .hint("write in the former format, or start the job without the checkpoint")
        .permanent()
}
