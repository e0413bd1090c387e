//! Records of requests and their responses.

use mmb_http::HeadBuffer;
use mmb_nf::Key;

/// Most requests of a worker that wait for responses. Their numbers have 16 bits.
const MOST_RECORDS: usize = 16_384;

/// The headers that are kept.
pub(super) const NAMES: [&[u8]; 3] = [b"host", b"referer", b"user-agent"];
pub(super) const HOST: usize = 0;
pub(super) const REFERER: usize = 1;
pub(super) const USER_AGENT: usize = 2;

/// A request and its response.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub key: Key,
    /// When the request began and its response ended, in milliseconds of the worker's clock.
    pub begin: u32,
    pub end: u32,
    pub head: HeadBuffer<1024>,
    /// The version of the request is 1.`minor`.
    pub minor: u8,
    /// 0: there was no response.
    pub status: u16,
    /// Bytes of the bodies.
    pub request_bytes: u64,
    pub response_bytes: u64,
    /// The whole response was seen.
    pub is_complete: bool,
    /// The record of the session's next request. 0: none.
    pub next: u16,
}

/// The records of a worker. Records are numbered from 1.
pub(crate) struct Records {
    records: Vec<Record>,
    free: Vec<u16>,
}

impl Default for Records {
    fn default() -> Self {
        // Memory that is not used stays with the kernel.
        Records { records: Vec::with_capacity(MOST_RECORDS), free: Vec::with_capacity(MOST_RECORDS) }
    }
}

impl Records {
    /// Begins a record. Returns its number. None: there is no room.
    pub fn insert(&mut self, key: Key, now: u32) -> Option<u16> {
        if let Some(number) = self.free.pop() {
            let record = self.get(number)?;
            record.head.clear();
            (record.key, record.begin, record.end, record.next) = (key, now, now, 0);
            (record.status, record.request_bytes, record.response_bytes) = (0, 0, 0);
            record.is_complete = false;
            return Some(number);
        }
        if self.records.len() == MOST_RECORDS {
            return None;
        }
        self.records.push(Record {
            key,
            begin: now,
            end: now,
            head: HeadBuffer::default(),
            minor: 0,
            status: 0,
            request_bytes: 0,
            response_bytes: 0,
            is_complete: false,
            next: 0,
        });
        Some(self.records.len() as u16)
    }

    pub fn get(&mut self, number: u16) -> Option<&mut Record> {
        self.records.get_mut(usize::from(number).checked_sub(1)?)
    }

    /// Frees a record that is in use. 0: none.
    pub fn remove(&mut self, number: u16) {
        if number != 0 {
            self.free.push(number);
        }
    }

    /// Returns the number of records in use.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.records.len() - self.free.len()
    }
}
