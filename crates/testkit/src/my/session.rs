//! Commands and their responses, in the format of each command.

use std::io;

use super::{
    Bytes, MyAnswer, MyClient, MyColumn, MyError, MyFailure, MyOk, MyResult, MyRows, MyStatement,
    MyValue, capability, command, execute, nonsense, status, text,
};

/// Format of rows: text, or binary as of a prepared statement.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Text,
    Binary,
}

impl MyClient {
    fn can(&self, capability: u32) -> bool {
        self.capabilities & capability != 0
    }

    fn ok(&mut self, packet: &[u8]) -> io::Result<MyOk> {
        let tracks = self.can(capability::SESSION_TRACK);
        let ok = MyOk::parse(&packet[1..], tracks).ok_or_else(nonsense)?;
        self.status = ok.status;
        Ok(ok)
    }

    fn error(packet: &[u8]) -> io::Result<MyError> {
        MyError::parse(&packet[1..]).ok_or_else(nonsense)
    }

    /// Reads the end of columns or of rows.
    fn eof(&mut self, packet: &[u8]) -> io::Result<MyOk> {
        if self.can(capability::DEPRECATE_EOF) {
            return self.ok(packet);
        }
        if packet.len() != 5 {
            return Err(nonsense());
        }
        let end = MyOk::parse_eof(&packet[1..]).ok_or_else(nonsense)?;
        self.status = end.status;
        Ok(end)
    }

    /// Sends a command whose response is success or an error.
    ///
    /// # Errors
    /// If the connection breaks.
    pub fn simple(&mut self, command: u8, body: &[u8]) -> Result<Result<MyOk, MyError>, MyFailure> {
        self.command(command, body)?;
        let packet = self.packet()?;
        match packet.first() {
            Some(0) => Ok(Ok(self.ok(&packet)?)),
            Some(0xFF) => Ok(Err(MyClient::error(&packet)?)),
            Some(0xFE) => Ok(Ok(self.eof(&packet)?)),
            _ => Err(nonsense().into()),
        }
    }

    /// Runs SQL as text; SQL errors are in the response.
    ///
    /// # Errors
    /// If the connection breaks.
    pub fn query(&mut self, sql: &str) -> Result<MyAnswer, MyFailure> {
        self.command(command::QUERY, sql.as_bytes())?;
        self.answer()
    }

    /// Reads the response to a text statement.
    ///
    /// # Errors
    /// If the connection breaks; the error then contains the part that arrived before.
    pub fn answer(&mut self) -> Result<MyAnswer, MyFailure> {
        self.results(Form::Text)
    }

    /// Reads the response to a prepared statement.
    ///
    /// # Errors
    /// As above.
    pub fn binary_answer(&mut self) -> Result<MyAnswer, MyFailure> {
        self.results(Form::Binary)
    }

    fn results(&mut self, form: Form) -> Result<MyAnswer, MyFailure> {
        let mut answer = MyAnswer::default();
        loop {
            match self.result(form, &mut answer) {
                Ok(true) => {}
                Ok(false) => return Ok(answer),
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    let last = String::from_utf8_lossy(&self.last);
                    let what = format!("{error}; the last packet began with {last:?}");
                    let error = io::Error::new(io::ErrorKind::InvalidData, what);
                    return Err(MyFailure::Broken(answer, error));
                }
                Err(error) => return Err(MyFailure::Broken(answer, error)),
            }
        }
    }

    /// Reads a result; returns whether another one follows.
    fn result(&mut self, form: Form, answer: &mut MyAnswer) -> io::Result<bool> {
        let mut packet = self.packet()?;
        if packet.first() == Some(&0xFB) {
            self.hand_over(&packet)?;
            packet = self.packet()?;
        }
        let result = match packet.first() {
            Some(0) => MyResult::Ok(self.ok(&packet)?),
            Some(0xFF) => MyResult::Error(MyClient::error(&packet)?),
            Some(_) => {
                let count = Bytes(&packet).number().ok_or_else(nonsense)?;
                let columns = self.columns(count)?;
                let mut rows = MyRows { columns, ..MyRows::default() };
                let error = self.rows(form, &mut rows)?;
                answer.results.push(MyResult::Rows(rows));
                match error {
                    None => return Ok(self.status & status::MORE_RESULTS != 0),
                    Some(error) => MyResult::Error(error),
                }
            }
            None => return Err(nonsense()),
        };
        let goes_on = matches!(&result, MyResult::Ok(ok) if ok.status & status::MORE_RESULTS != 0);
        answer.results.push(result);
        Ok(goes_on)
    }

    /// Sends the file that the server requests, or an empty one.
    fn hand_over(&mut self, packet: &[u8]) -> io::Result<()> {
        self.files_asked.push(text(&packet[1..]));
        let file = self.file.clone().unwrap_or_default();
        for piece in file.chunks(64 << 10) {
            self.put(piece)?;
        }
        self.put(&[])
    }

    /// Reads a packet among columns. Drivers accept an error at any point: here it is reported as a
    /// lost connection.
    fn packet_or_lost(&mut self) -> io::Result<Vec<u8>> {
        let packet = self.packet()?;
        if packet.first() == Some(&0xFF) {
            let error = MyClient::error(&packet)?;
            return Err(io::Error::new(io::ErrorKind::ConnectionAborted, error.to_string()));
        }
        Ok(packet)
    }

    fn columns(&mut self, count: u64) -> io::Result<Vec<MyColumn>> {
        let mut columns = Vec::new();
        for _ in 0..count {
            let packet = self.packet_or_lost()?;
            columns.push(MyColumn::parse(&packet).ok_or_else(nonsense)?);
        }
        if !self.can(capability::DEPRECATE_EOF) && count > 0 {
            let packet = self.packet_or_lost()?;
            if packet.first() != Some(&0xFE) {
                return Err(nonsense());
            }
            self.eof(&packet)?;
        } else {
            self.status &= !status::CURSOR_EXISTS;
        }
        Ok(columns)
    }

    /// Reads rows to their end; returns the error that ended them, if there is one.
    fn rows(&mut self, form: Form, rows: &mut MyRows) -> io::Result<Option<MyError>> {
        // With a cursor, rows wait for a fetch; text results have no cursor, regardless of the
        // status.
        if matches!(form, Form::Binary) && self.status & status::CURSOR_EXISTS != 0 {
            rows.end = Some(MyOk { status: self.status, ..MyOk::default() });
            return Ok(None);
        }
        loop {
            let packet = self.packet()?;
            match packet.first() {
                // A longer packet with this first byte is a row whose first value has 16 MiB.
                Some(0xFE) if packet.len() < super::PACKET_BYTES_MAX => {
                    rows.end = Some(self.eof(&packet)?);
                    return Ok(None);
                }
                Some(0xFF) => return Ok(Some(MyClient::error(&packet)?)),
                _ => {
                    let row = parse_row(form, &rows.columns, &packet);
                    rows.rows.push(row.ok_or_else(nonsense)?);
                }
            }
        }
    }

    /// Prepares a statement. An SQL error is returned as the server's refusal.
    ///
    /// # Errors
    /// If the connection breaks, or the server refuses.
    pub fn prepare(&mut self, sql: &str) -> Result<MyStatement, MyFailure> {
        self.command(command::STMT_PREPARE, sql.as_bytes())?;
        self.prepared()
    }

    /// Reads the response to a preparation that was sent.
    ///
    /// # Errors
    /// As above.
    pub fn prepared(&mut self) -> Result<MyStatement, MyFailure> {
        let packet = self.packet()?;
        let mut rest = Bytes(&packet);
        match rest.u8() {
            Some(0) => {}
            Some(0xFF) => return Err(MyFailure::Server(MyClient::error(&packet)?)),
            _ => return Err(nonsense().into()),
        }
        let parse = |rest: &mut Bytes<'_>| {
            let (id, columns, parameters) = (rest.u32()?, rest.u16()?, rest.u16()?);
            rest.u8()?;
            Some(MyStatement { id, columns, parameters, warnings: rest.u16()? })
        };
        let statement = parse(&mut rest).ok_or_else(nonsense)?;
        self.columns(statement.parameters.into())?;
        self.columns(statement.columns.into())?;
        Ok(statement)
    }

    /// Runs a prepared statement; SQL errors are in the response.
    ///
    /// # Errors
    /// If the connection breaks.
    pub fn execute(
        &mut self,
        statement: &MyStatement,
        values: &[MyValue<'_>],
    ) -> Result<MyAnswer, MyFailure> {
        self.command(command::STMT_EXECUTE, &execute(statement.id, 0, values, true))?;
        self.binary_answer()
    }

    /// Sends a piece of a parameter, which has no response.
    ///
    /// # Errors
    /// If the connection breaks.
    pub fn long_data(&mut self, statement: u32, parameter: u16, data: &[u8]) -> io::Result<()> {
        let body = [&statement.to_le_bytes()[..], &parameter.to_le_bytes(), data].concat();
        self.command(command::STMT_SEND_LONG_DATA, &body)
    }

    /// Fetches up to `count` rows of a statement's cursor.
    ///
    /// # Errors
    /// If the connection breaks.
    pub fn fetch(
        &mut self,
        statement: u32,
        columns: &[MyColumn],
        count: u32,
    ) -> Result<Result<MyRows, MyError>, MyFailure> {
        let body = [statement.to_le_bytes(), count.to_le_bytes()].concat();
        self.command(command::STMT_FETCH, &body)?;
        self.status &= !status::CURSOR_EXISTS;
        let mut rows = MyRows { columns: columns.to_vec(), ..MyRows::default() };
        match self.rows(Form::Binary, &mut rows)? {
            None => Ok(Ok(rows)),
            Some(error) => Ok(Err(error)),
        }
    }

    /// Closes a statement, which has no response.
    ///
    /// # Errors
    /// If the connection breaks.
    pub fn close_statement(&mut self, statement: u32) -> io::Result<()> {
        self.command(command::STMT_CLOSE, &statement.to_le_bytes())
    }

    /// Returns the server's statistics line.
    ///
    /// # Errors
    /// If the connection breaks.
    pub fn statistics(&mut self) -> io::Result<String> {
        self.command(command::STATISTICS, &[])?;
        self.packet().map(|packet| text(&packet))
    }

    /// Returns the columns of a table, by the deprecated command.
    ///
    /// # Errors
    /// If the connection breaks, or the server refuses.
    pub fn field_list(&mut self, table: &str) -> Result<Vec<String>, MyFailure> {
        self.command(command::FIELD_LIST, &[table.as_bytes(), b"\0"].concat())?;
        let mut names = Vec::new();
        loop {
            let packet = self.packet()?;
            match packet.first() {
                Some(0xFF) => return Err(MyFailure::Server(MyClient::error(&packet)?)),
                Some(0xFE) => {
                    self.eof(&packet)?;
                    return Ok(names);
                }
                _ => names.push(MyColumn::parse(&packet).ok_or_else(nonsense)?.name),
            }
        }
    }

    /// Runs SQL that must not fail.
    ///
    /// # Panics
    /// If it fails.
    pub fn run(&mut self, sql: &str) -> MyAnswer {
        let answer = self.query(sql).unwrap_or_else(|error| panic!("{sql:.300}: {error}"));
        match answer.error() {
            None => answer,
            Some(error) => panic!("{sql:.300}: {error}"),
        }
    }

    /// Runs SQL that must fail, and returns the error.
    ///
    /// # Panics
    /// If it does not fail.
    pub fn fail(&mut self, sql: &str) -> MyError {
        let answer = self.query(sql).unwrap_or_else(|error| panic!("{sql:.300}: {error}"));
        answer.error().unwrap_or_else(|| panic!("{sql:.300} did not fail: {answer:?}"))
    }

    /// Returns the first value of the first row of SQL that must not fail.
    ///
    /// # Panics
    /// If it fails, or returns no value.
    pub fn value(&mut self, sql: &str) -> String {
        self.run(sql).value()
    }
}

fn parse_row(form: Form, columns: &[MyColumn], packet: &[u8]) -> Option<Vec<Option<Vec<u8>>>> {
    let mut rest = Bytes(packet);
    let mut row = Vec::with_capacity(columns.len());
    if form == Form::Text {
        for _ in columns {
            row.push(rest.value()?);
        }
    } else {
        if rest.u8()? != 0 {
            return None;
        }
        // Two bits are reserved before the first column's.
        let nulls = rest.bytes((columns.len() + 2).div_ceil(8))?;
        for (at, column) in columns.iter().enumerate() {
            let is_null = nulls[(at + 2) / 8] & (1 << ((at + 2) % 8)) != 0;
            row.push(if is_null { None } else { Some(column.value(&mut rest)?) });
        }
    }
    rest.0.is_empty().then_some(row)
}
