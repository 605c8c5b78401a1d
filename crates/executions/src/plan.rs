//! Turns a request into the commands of its stages, with all checks.
//!
//! Pure: no files, clocks or locks. Every refusal names the field that is at fault.

mod checks;

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use api::{
    BytesEncoding, ExecutionRequest, JudgeProgram, LimitSpec, OutputComparison, SourceFile,
    TestCase,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use sandbox::{ProgramLimits, StdinSource, TerminalDimensions, WorkspaceFile};

use self::checks::{PlannedProgram, check_argument_bytes, directories};
pub(crate) use self::checks::{check_env_name, check_path};
use crate::config::{ConfigError, ExecutionsConfig};
use crate::error::RequestRefusal;
use crate::judge::compare::ComparisonRule;
use crate::judge::{ANSWER, INPUT, OUTPUT, PEER_GRACE, SAID_BYTES_MAX};
use crate::languages::{ArgumentTemplate, ENVIRONMENT, LanguageProgram, TemplateValues};
use crate::limits::{LimitRules, LimitTable};
use crate::templates::ExecutionTemplate;

/// Maximum size of arguments and environment of one program, including their pointers. Linux
/// accepts this much for any stack limit (`ARG_MAX`, 32 pages; see execve(2)).
const ARGUMENT_BYTES_MAX: usize = 128 << 10;
/// Number of files and directories of the sandbox itself.
const INODES_SPARE: u64 = 16;
const PAGE_BYTES: u64 = 4096;

/// Directory that replaces prepared files while they do not exist yet.
const UNPREPARED: &str = "/tmp/prepared";
/// Label of executions without a language.
const NO_LANGUAGE: &str = "argv";

/// Plan of an execution.
#[derive(Debug)]
pub(crate) struct ExecutionPlan {
    /// The program that is judged.
    pub(crate) program: ProgramRecipe,
    /// Runs and their inputs.
    pub(crate) runs: RunPlan,
    /// Judge of its answer.
    pub(crate) judge: JudgePlan,
    /// Maximum memory in use at any one time.
    pub(crate) memory_bytes: u64,
    /// Maximum size of the answer, without its small parts.
    pub(crate) answer_bytes: u64,
    /// Canonical name of the language, or `argv`.
    pub(crate) language: String,
    /// True if standard error goes to standard output.
    pub(crate) merge_stderr: bool,
    /// True if the cache and warm runtimes must not be used.
    pub(crate) fresh: bool,
}

/// A program before it is started.
#[derive(Debug)]
pub(crate) struct ProgramRecipe {
    /// Files to place.
    pub(crate) files: Vec<WorkspaceFile>,
    /// Compile stage.
    pub(crate) compile: Option<CompileStage>,
}

/// A compile stage.
#[derive(Debug)]
pub(crate) struct CompileStage {
    /// The compiler.
    pub(crate) start: ProgramStart,
    /// Program that it compiles.
    pub(crate) program: LanguageProgram,
}

/// Start of a program.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProgramStart {
    pub(crate) argv: Vec<Vec<u8>>,
    pub(crate) env: Vec<Vec<u8>>,
    pub(crate) limits: ProgramLimits,
}

/// Runs of the program.
#[derive(Debug)]
pub(crate) enum RunPlan {
    /// A single run.
    Single(SingleRun),
    /// One run for each test case.
    Cases(Vec<TestCasePlan>, CasePolicy),
}

/// Policy after a test case that is not `OK`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CasePolicy {
    Always,
    WhileOk,
}

/// The only run of a program.
#[derive(Debug)]
pub(crate) struct SingleRun {
    pub(crate) start: ProgramStart,
    pub(crate) stdin: StdinSource,
    pub(crate) terminal: Option<TerminalDimensions>,
    /// Names of the files to return, as requested.
    pub(crate) outputs: Vec<String>,
    pub(crate) outputs_bytes_max: u64,
}

/// A test case.
#[derive(Debug)]
pub(crate) struct TestCasePlan {
    pub(crate) name: String,
    pub(crate) start: ProgramStart,
    pub(crate) stdin: Vec<u8>,
    pub(crate) expected: Option<Vec<u8>>,
}

/// Judge of an answer.
#[derive(Debug)]
pub(crate) enum JudgePlan {
    /// No judge: exit code 0 is right.
    Nobody,
    /// Comparison with an expected output.
    Compare(ComparisonRule),
    /// A program that runs afterwards.
    Checker(ProgramRecipe, ProgramStart),
    /// A program that runs at the same time.
    Interactor(ProgramRecipe, ProgramStart),
}

/// Makes plans within the configured limits.
#[derive(Debug)]
pub(crate) struct ExecutionPlanner {
    config: ExecutionsConfig,
    run: LimitRules,
    compile: LimitRules,
    memory_budget_bytes: u64,
    /// `PATH` in sandboxes.
    path: String,
}

/// Run stage of a subject before its arguments and limits are known.
struct RunStarter<'a> {
    planner: &'a ExecutionPlanner,
    program: Option<&'a LanguageProgram>,
    argv: Vec<String>,
    /// Default arguments.
    args: Vec<String>,
    env: BTreeMap<String, String>,
    /// Names of the files of the language, the entry first.
    names: Vec<String>,
}

impl ExecutionPlanner {
    pub(crate) fn new(
        config: ExecutionsConfig,
        memory_budget_bytes: u64,
        path: &str,
    ) -> Result<ExecutionPlanner, ConfigError> {
        let rules = |kind, defaults, maxima| {
            LimitRules::new(kind, defaults, maxima, memory_budget_bytes).map_err(ConfigError)
        };
        if config.outputs_max > sandbox::OUTPUTS_MAX {
            let problem = format!("outputs_max is above {}", sandbox::OUTPUTS_MAX);
            return Err(ConfigError(problem));
        }
        let run = rules(LimitTable::Run, &config.limits, &config.limits_max)?;
        let compile =
            rules(LimitTable::Compile, &config.compile_limits, &config.compile_limits_max)?;
        Ok(ExecutionPlanner { run, compile, memory_budget_bytes, path: path.to_owned(), config })
    }

    /// Returns the limits of programs or of compilers.
    pub(crate) fn rules(&self, kind: LimitTable) -> &LimitRules {
        match kind {
            LimitTable::Run => &self.run,
            LimitTable::Compile => &self.compile,
        }
    }

    /// Returns the settings that plans follow.
    pub(crate) fn config(&self) -> &ExecutionsConfig {
        &self.config
    }

    /// Checks `request` and turns it into commands. `program` is its language, `companion` that of
    /// its checker or interactor; `stdin` replaces the request's own. The environments of all
    /// programs are based on that of `template`.
    pub(crate) fn plan(
        &self,
        mut request: ExecutionRequest,
        program: Option<&LanguageProgram>,
        companion: Option<&LanguageProgram>,
        stdin: Option<StdinSource>,
        template: Option<&ExecutionTemplate>,
    ) -> Result<ExecutionPlan, RequestRefusal> {
        let mut template_env = BTreeMap::new();
        if let Some(template) = template {
            template.extend(&mut template_env, &self.path);
        }
        let subject = PlannedProgram::of_request(&mut request);
        subject.check()?;
        checks::check_whole(&request, stdin.is_some())?;
        checks::check_outputs(&request.outputs, self.config.outputs_max)?;
        let limits = self.limits_of(program, "limits", &request.limits)?;
        let tests = std::mem::take(&mut request.tests);
        let (stdin, tests) = match &*tests {
            [] => (self.stdin(&mut request, stdin)?, None),
            [_, ..] => (StdinSource::Empty, Some(tests)),
        };
        if tests.is_some() || request.interactor.is_some() {
            check_has_artifacts(program)?;
        }
        let (recipe, starter) =
            self.recipe(subject, program, &limits, &request.compile_limits, &template_env)?;
        let start = starter.start(&starter.args, limits)?;
        let mut memory_bytes = limits.memory_bytes;
        let terminal = request.terminal;
        let runs = match tests {
            None => RunPlan::Single(SingleRun {
                start,
                stdin,
                terminal: terminal
                    .map(|size| TerminalDimensions { rows: size.rows, cols: size.cols }),
                outputs: request.outputs,
                outputs_bytes_max: self.config.outputs_bytes_max,
            }),
            Some(tests) => {
                let cases = self.cases(tests, &start, &request.limits, &starter)?;
                let most = cases.iter().map(|case| case.start.limits.memory_bytes).max();
                memory_bytes = memory_bytes.max(most.unwrap_or(0));
                let stop = request.stop_at_first_failure;
                RunPlan::Cases(cases, if stop { CasePolicy::WhileOk } else { CasePolicy::Always })
            }
        };
        let longest = match &runs {
            RunPlan::Single(single) => single.start.limits.wall,
            RunPlan::Cases(cases, _) => {
                cases.iter().map(|case| case.start.limits.wall).max().unwrap_or_default()
            }
        };
        let has_tests = matches!(runs, RunPlan::Cases(..));
        let judge = (request.interactor, request.comparison);
        let judge = self.judge(judge, companion, has_tests, longest, &template_env)?;
        let memory_bytes = self.memory(memory_bytes, &recipe, &judge)?;
        let answer_bytes = self.answer_bytes(&recipe, &runs);
        Ok(ExecutionPlan {
            program: recipe,
            runs,
            judge,
            memory_bytes,
            answer_bytes,
            language: program.map_or(NO_LANGUAGE, |it| &it.language.name).to_owned(),
            merge_stderr: request.merge_stderr,
            fresh: request.fresh,
        })
    }

    /// Returns the judge. `longest` is the maximum time of the program.
    fn judge(
        &self,
        judges: (Option<JudgeProgram>, Option<OutputComparison>),
        program: Option<&LanguageProgram>,
        has_tests: bool,
        longest: Duration,
        template_env: &BTreeMap<String, String>,
    ) -> Result<JudgePlan, RequestRefusal> {
        let rule = match judges {
            (Some(interactor), _) => {
                let below = |refusal| below("interactor", refusal);
                let added: &[&str] = if has_tests { &[INPUT, OUTPUT, ANSWER] } else { &[] };
                let patient = interactor.limits.wall_ms.is_none();
                let (recipe, mut start) =
                    self.companion(interactor, program, added, template_env).map_err(below)?;
                if patient {
                    // If both wait for each other, the program's limit is reached first.
                    start.limits.wall = start.limits.wall.max(longest.saturating_add(PEER_GRACE));
                }
                return Ok(JudgePlan::Interactor(recipe, start));
            }
            (None, Some(OutputComparison::Checker(checker))) => {
                let below = |refusal| below("comparison", refusal);
                let added = [INPUT, OUTPUT, ANSWER];
                let companion = self.companion(*checker, program, &added, template_env);
                let (recipe, start) = companion.map_err(below)?;
                return Ok(JudgePlan::Checker(recipe, start));
            }
            (None, None) if !has_tests => return Ok(JudgePlan::Nobody),
            (None, None | Some(OutputComparison::TrailingSpace)) => ComparisonRule::TrailingSpace,
            (None, Some(OutputComparison::Exact)) => ComparisonRule::Exact,
            (None, Some(OutputComparison::Tokens)) => ComparisonRule::Tokens,
            (None, Some(OutputComparison::Float { absolute, relative })) => {
                ComparisonRule::Float { absolute, relative }
            }
        };
        Ok(JudgePlan::Compare(rule))
    }

    /// Returns the maximum memory in use: a solution and its interactor run concurrently, all
    /// others one after the other.
    fn memory(
        &self,
        run: u64,
        recipe: &ProgramRecipe,
        judge: &JudgePlan,
    ) -> Result<u64, RequestRefusal> {
        let compile = |recipe: &ProgramRecipe| {
            recipe.compile.as_ref().map_or(0, |compile| compile.start.limits.memory_bytes)
        };
        let most = run.max(compile(recipe));
        let most = match judge {
            JudgePlan::Nobody | JudgePlan::Compare(_) => most,
            JudgePlan::Checker(recipe, start) => {
                most.max(start.limits.memory_bytes).max(compile(recipe))
            }
            JudgePlan::Interactor(recipe, start) => {
                let both = run.saturating_add(start.limits.memory_bytes);
                if both > self.memory_budget_bytes {
                    let message = format!(
                        "and the program's own must be at most {} together",
                        self.memory_budget_bytes
                    );
                    return Err(RequestRefusal::invalid("interactor.limits.memory_bytes", message));
                }
                most.max(both).max(compile(recipe))
            }
        };
        Ok(most)
    }

    /// Returns the maximum output of the program and its compiler, as encoded in an answer.
    fn answer_bytes(&self, recipe: &ProgramRecipe, runs: &RunPlan) -> u64 {
        let both = |limits: &ProgramLimits| base64_bytes(limits.output_bytes).saturating_mul(2);
        let compiler = recipe.compile.as_ref().map_or(0, |compile| both(&compile.start.limits));
        let run = match runs {
            RunPlan::Single(single) if single.outputs.is_empty() => both(&single.start.limits),
            RunPlan::Single(single) => {
                both(&single.start.limits) + base64_bytes(single.outputs_bytes_max)
            }
            RunPlan::Cases(cases, _) => {
                let all = cases.iter().map(|case| both(&case.start.limits));
                let kept = all.clone().fold(0, u64::saturating_add);
                let kept = kept.min(self.config.tests_output_bytes_max);
                let judges = len_of(cases).saturating_mul(base64_bytes(SAID_BYTES_MAX) * 2);
                // One more output is held before it is left out.
                kept.saturating_add(all.max().unwrap_or(0)).saturating_add(judges)
            }
        };
        compiler.saturating_add(run)
    }

    fn limits_of(
        &self,
        program: Option<&LanguageProgram>,
        path: &str,
        requested: &LimitSpec,
    ) -> Result<ProgramLimits, RequestRefusal> {
        let none = LimitSpec::default();
        self.run.resolve(path, requested, program.map_or(&none, |program| &program.language.limits))
    }

    /// Returns everything about a program except its start. `template_env` is the base of its
    /// environment, and of its compiler's.
    fn recipe<'a>(
        &'a self,
        mut subject: PlannedProgram,
        program: Option<&'a LanguageProgram>,
        limits: &ProgramLimits,
        compile_limits: &LimitSpec,
        template_env: &BTreeMap<String, String>,
    ) -> Result<(ProgramRecipe, RunStarter<'a>), RequestRefusal> {
        for (name, value) in template_env {
            subject.env.entry(name.clone()).or_insert_with(|| value.clone());
        }
        let files = self.files(&mut subject, program)?;
        let none = LimitSpec::default();
        let mut of_language = *program.map_or(&none, |program| &program.language.compile_limits);
        if program.is_some_and(|program| program.way().is_preparing()) {
            // It compiles the result that would otherwise be prepared, at the same time as other
            // executions.
            of_language = self.compile.with_all_time(&of_language);
        }
        let compile_limits =
            self.compile.resolve("compile_limits", compile_limits, &of_language)?;
        let names = program.map_or_else(Vec::new, |program| {
            let names = language_files(&files, &program.language.extensions);
            names.into_iter().map(str::to_owned).collect()
        });
        let starter = RunStarter {
            planner: self,
            program,
            argv: subject.argv.unwrap_or_default(),
            args: subject.args,
            env: subject.env,
            names,
        };
        let compile = program.and_then(|program| Some((program, program.way().compile.as_ref()?)));
        let compile = match compile {
            Some((program, template)) => {
                let names: Vec<&str> = starter.names.iter().map(String::as_str).collect();
                let values = starter.values(program, &names, &starter.args, &compile_limits);
                let env = &program.way().compile_env;
                let start = ProgramStart {
                    argv: template.fill_compile(&values, &subject.compile_args),
                    env: self.environment(env, &values, template_env),
                    limits: compile_limits,
                };
                let argument_bytes = subject.compile_args.iter().map(String::len).sum::<usize>();
                let field =
                    if argument_bytes > ARGUMENT_BYTES_MAX / 2 { "compile_args" } else { "files" };
                check_argument_bytes(&start, field)?;
                Some(CompileStage { start, program: program.clone() })
            }
            None if !subject.compile_args.is_empty() => {
                let message = "nothing is compiled here that could take them";
                return Err(RequestRefusal::invalid("compile_args", message));
            }
            None => None,
        };
        match &compile {
            Some(compile) => check_room("compile_limits", &compile.start.limits, &files)?,
            None => check_room("limits", limits, &files)?,
        }
        Ok((ProgramRecipe { files, compile }, starter))
    }

    /// Returns a checker or an interactor. `added` are the files that are placed beside its own;
    /// their names become its last arguments.
    fn companion(
        &self,
        mut companion: JudgeProgram,
        program: Option<&LanguageProgram>,
        added: &[&str],
        template_env: &BTreeMap<String, String>,
    ) -> Result<(ProgramRecipe, ProgramStart), RequestRefusal> {
        companion.args.extend(added.iter().map(|name| (*name).to_owned()));
        let (limits, compile_limits) = (companion.limits, companion.compile_limits);
        let subject = PlannedProgram::of_companion(companion);
        subject.check()?;
        check_has_artifacts(program)?;
        let limits = self.limits_of(program, "limits", &limits)?;
        let (recipe, starter) =
            self.recipe(subject, program, &limits, &compile_limits, template_env)?;
        let start = starter.start(&starter.args, limits)?;
        for (index, file) in recipe.files.iter().enumerate() {
            let top = file.path.split('/').next().unwrap_or_default();
            if added.contains(&top) {
                let message = "is the name of a file that Cove adds";
                return Err(RequestRefusal::invalid(format!("files[{index}].name"), message));
            }
        }
        Ok((recipe, start))
    }

    fn cases(
        &self,
        tests: Vec<TestCase>,
        usual: &ProgramStart,
        limits: &LimitSpec,
        starter: &RunStarter<'_>,
    ) -> Result<Vec<TestCasePlan>, RequestRefusal> {
        if tests.len() > self.config.tests_max {
            let message = format!("there may be at most {} test cases", self.config.tests_max);
            return Err(RequestRefusal::invalid("tests", message));
        }
        let mut total = 0_u64;
        let mut cases = Vec::with_capacity(tests.len());
        for (index, test) in tests.into_iter().enumerate() {
            let case = self.case(index, test, usual, limits, starter);
            let case = case.map_err(|refusal| below(&format!("tests[{index}]"), refusal))?;
            total += len(&case.stdin) + case.expected.as_ref().map_or(0, |bytes| len(bytes));
            if total > self.config.tests_bytes_max {
                let message = format!(
                    "input and expected output must be at most {} bytes together",
                    self.config.tests_bytes_max
                );
                return Err(RequestRefusal::invalid("tests", message));
            }
            cases.push(case);
        }
        Ok(cases)
    }

    fn case(
        &self,
        index: usize,
        test: TestCase,
        usual: &ProgramStart,
        limits: &LimitSpec,
        starter: &RunStarter<'_>,
    ) -> Result<TestCasePlan, RequestRefusal> {
        if let Some(name) = &test.name {
            checks::check_label("name", name)?;
        }
        let stdin = one_of("stdin", test.stdin, test.stdin_base64)?;
        if let Some((field, bytes)) = &stdin
            && len(bytes) > self.config.stdin_bytes_max
        {
            let message = format!("must be at most {} bytes", self.config.stdin_bytes_max);
            return Err(RequestRefusal::invalid(*field, message));
        }
        let expected = one_of("expected", test.expected, test.expected_base64)?;
        let own_limits = (test.limits != LimitSpec::default()).then_some(&test.limits);
        let start = match (&test.args, own_limits) {
            (None, None) => usual.clone(),
            (args, own) => {
                let own =
                    own.map(|own| self.limits_of(starter.program, "limits", &over(own, limits)));
                let limits = own.transpose()?.unwrap_or(usual.limits);
                checks::check_strings("args", args.as_deref().unwrap_or_default())?;
                let args = args.as_deref().unwrap_or(&starter.args);
                let named = |refusal| RequestRefusal { field: "args".to_owned(), ..refusal };
                starter.start(args, limits).map_err(named)?
            }
        };
        Ok(TestCasePlan {
            name: test.name.unwrap_or_else(|| (index + 1).to_string()),
            start,
            stdin: stdin.map(|(_, bytes)| bytes).unwrap_or_default(),
            expected: expected.map(|(_, bytes)| bytes),
        })
    }

    fn stdin(
        &self,
        request: &mut ExecutionRequest,
        attached: Option<StdinSource>,
    ) -> Result<StdinSource, RequestRefusal> {
        let own = one_of("stdin", request.stdin.take(), request.stdin_base64.take())?;
        match (own, attached) {
            (None, attached) => Ok(attached.unwrap_or_default()),
            (Some((field, bytes)), None) if len(&bytes) > self.config.stdin_bytes_max => {
                let message = format!("must be at most {} bytes", self.config.stdin_bytes_max);
                Err(RequestRefusal::invalid(field, message))
            }
            (Some((_, bytes)), None) => Ok(StdinSource::Bytes(bytes)),
            (Some(_), Some(_)) => Err(RequestRefusal::invalid("stdin", "is specified twice")),
        }
    }

    /// Returns the files to place, checked and decoded.
    fn files(
        &self,
        subject: &mut PlannedProgram,
        program: Option<&LanguageProgram>,
    ) -> Result<Vec<WorkspaceFile>, RequestRefusal> {
        let files = std::mem::take(&mut subject.files);
        let mut decoded = Vec::with_capacity(files.len() + 1);
        let mut total = 0;
        if let (Some(source), Some(program)) = (subject.source.take(), program) {
            total = len(source.as_bytes());
            if total > self.config.files_bytes_max {
                return Err(self.too_large("source"));
            }
            let path = program.language.entry.clone();
            if let Some(index) = files.iter().position(|file| file.name == path) {
                let message = format!("\"{path}\" is the file that the source becomes");
                return Err(RequestRefusal::invalid(format!("files[{index}].name"), message));
            }
            let content = source.into_bytes().into();
            decoded.push(WorkspaceFile { path, content, executable: false });
        }
        if files.len() > self.config.files_max {
            let message = format!("there may be at most {} files", self.config.files_max);
            return Err(RequestRefusal::invalid("files", message));
        }
        checks::check_names(files.iter().map(|file| file.name.as_str()), "files", ".name")?;
        for (index, SourceFile { name, content, encoding, executable }) in
            files.into_iter().enumerate()
        {
            let content = match encoding {
                BytesEncoding::Utf8 => content.into_bytes(),
                BytesEncoding::Base64 => decode(&format!("files[{index}].content"), &content)?,
            };
            total += len(&content);
            if total > self.config.files_bytes_max {
                return Err(self.too_large("files"));
            }
            decoded.push(WorkspaceFile { path: name, content: content.into(), executable });
        }
        checks::check_no_file_is_a_directory(&decoded)?;
        Ok(decoded)
    }

    fn too_large(&self, field: &str) -> RequestRefusal {
        let message =
            format!("a program must be at most {} bytes together", self.config.files_bytes_max);
        RequestRefusal::invalid(field, message)
    }

    /// Returns a minimal set, then the language's, then the caller's variables; the last one of a
    /// name counts.
    fn environment(
        &self,
        language: &[(String, ArgumentTemplate)],
        values: &TemplateValues<'_>,
        caller: &BTreeMap<String, String>,
    ) -> Vec<Vec<u8>> {
        let base: Vec<_> = [("PATH", self.path.as_str())].into_iter().chain(ENVIRONMENT).collect();
        let mut env = Vec::with_capacity(base.len() + language.len() + caller.len());
        let of_language = |name: &str| language.iter().any(|(other, _)| other == name);
        for (name, value) in base {
            if !of_language(name) && !caller.contains_key(name) {
                env.push(variable(name, value.as_bytes()));
            }
        }
        for (name, template) in language.iter().filter(|(name, _)| !caller.contains_key(name)) {
            env.push(variable(name, &template.fill(values).concat()));
        }
        env.extend(caller.iter().map(|(name, value)| variable(name, value.as_bytes())));
        env
    }
}

impl RunStarter<'_> {
    fn values<'v>(
        &'v self,
        program: &'v LanguageProgram,
        names: &'v [&'v str],
        args: &'v [String],
        limits: &ProgramLimits,
    ) -> TemplateValues<'v> {
        TemplateValues {
            entry: names.first().copied().unwrap_or_default(),
            files: names,
            args,
            memory_bytes: limits.memory_bytes,
            prepared: prepared(program),
        }
    }

    /// Returns the start of the program with these arguments and limits.
    fn start(
        &self,
        args: &[String],
        limits: ProgramLimits,
    ) -> Result<ProgramStart, RequestRefusal> {
        let (start, field) = match self.program {
            Some(program) => {
                let names: Vec<&str> = self.names.iter().map(String::as_str).collect();
                let values = self.values(program, &names, args, &limits);
                let way = program.way();
                let argv = way.run.fill(&values);
                let env = self.planner.environment(&way.env, &values, &self.env);
                (ProgramStart { argv, env, limits }, "args")
            }
            None => {
                let bytes = |strings: &[String]| strings.iter().map(String::len).sum::<usize>();
                let larger = bytes(args) > bytes(&self.argv);
                let strings = self.argv.iter().chain(args);
                let argv = strings.map(|word| word.as_bytes().to_vec()).collect();
                let values =
                    TemplateValues { entry: "", files: &[], args, memory_bytes: 0, prepared: "" };
                let env = self.planner.environment(&[], &values, &self.env);
                (ProgramStart { argv, env, limits }, if larger { "args" } else { "argv" })
            }
        };
        check_argument_bytes(&start, field)?;
        Ok(start)
    }
}

/// Returns a text or its decoded base64, whichever is given, with the name of its field.
fn one_of(
    field: &'static str,
    text: Option<String>,
    base64: Option<String>,
) -> Result<Option<(&'static str, Vec<u8>)>, RequestRefusal> {
    let base64_field = match field {
        "expected" => "expected_base64",
        _ => "stdin_base64",
    };
    match (text, base64) {
        (None, None) => Ok(None),
        (Some(text), None) => Ok(Some((field, text.into_bytes()))),
        (None, Some(text)) => Ok(Some((base64_field, decode(base64_field, &text)?))),
        (Some(_), Some(_)) => {
            let message = format!("is specified twice; use either {field} or {base64_field}");
            Err(RequestRefusal::invalid(field, message))
        }
    }
}

fn below(prefix: &str, refusal: RequestRefusal) -> RequestRefusal {
    RequestRefusal { field: format!("{prefix}.{}", refusal.field), ..refusal }
}

/// Requires artifacts: test cases and companions run compiled programs in other sandboxes.
fn check_has_artifacts(program: Option<&LanguageProgram>) -> Result<(), RequestRefusal> {
    match program.map(LanguageProgram::way) {
        Some(way) if way.compile.is_some() && way.artifacts.is_none() => {
            let message = "the language's entry does not say what compiling makes (`artifacts`), \
                           so it can be run once only";
            Err(RequestRefusal::invalid("language", message))
        }
        Some(_) | None => Ok(()),
    }
}

/// Returns `own`, with `usual` for the limits that it does not set.
fn over(own: &LimitSpec, usual: &LimitSpec) -> LimitSpec {
    LimitSpec {
        cpu_ms: own.cpu_ms.or(usual.cpu_ms),
        wall_ms: own.wall_ms.or(usual.wall_ms),
        memory_bytes: own.memory_bytes.or(usual.memory_bytes),
        processes: own.processes.or(usual.processes),
        output_bytes: own.output_bytes.or(usual.output_bytes),
        open_files: own.open_files.or(usual.open_files),
        file_size_bytes: own.file_size_bytes.or(usual.file_size_bytes),
        disk_bytes: own.disk_bytes.or(usual.disk_bytes),
        disk_inodes: own.disk_inodes.or(usual.disk_inodes),
        stack_bytes: own.stack_bytes.or(usual.stack_bytes),
    }
}

fn variable(name: &str, value: &[u8]) -> Vec<u8> {
    let mut variable = Vec::with_capacity(name.len() + 1 + value.len());
    variable.extend_from_slice(name.as_bytes());
    variable.push(b'=');
    variable.extend_from_slice(value);
    variable
}

fn prepared(program: &LanguageProgram) -> &str {
    let prepared = program.way().prepared.as_ref();
    prepared.and_then(|prepared| prepared.inside()).unwrap_or(UNPREPARED)
}

/// Returns the files for a compiler: the entry, and every other one with an extension of the
/// language.
fn language_files<'a>(files: &'a [WorkspaceFile], extensions: &[String]) -> Vec<&'a str> {
    let of_language = |name: &str| {
        let extension = name.rsplit_once('.').map(|(_, extension)| extension);
        extensions.is_empty() || extensions.iter().any(|known| Some(known.as_str()) == extension)
    };
    let names = files.iter().map(|file| file.path.as_str()).enumerate();
    names.filter(|(index, name)| *index == 0 || of_language(name)).map(|(_, name)| name).collect()
}

/// Returns the room that placed files take: bytes in whole pages, and files including their parent
/// directories.
pub(crate) fn room(files: &[WorkspaceFile]) -> (u64, u64) {
    let pages = files.iter().map(|file| file.content.len().next_multiple_of(PAGE_BYTES));
    let above: HashSet<&str> = files.iter().flat_map(|file| directories(&file.path)).collect();
    (pages.sum(), u64::try_from(files.len() + above.len()).unwrap_or(u64::MAX))
}

/// Checks that the files fit into the sandbox in which they are placed.
fn check_room(
    path: &str,
    limits: &ProgramLimits,
    files: &[WorkspaceFile],
) -> Result<(), RequestRefusal> {
    let (bytes, inodes) = room(files);
    for (field, limit, needed) in [
        ("disk_bytes", limits.disk_bytes, bytes),
        // Files are held in memory, together with the memory of the program that uses them.
        ("memory_bytes", limits.memory_bytes / 2, bytes),
        ("disk_inodes", limits.disk_inodes, inodes.saturating_add(INODES_SPARE)),
    ] {
        if needed > limit {
            let message =
                format!("is too small for the files of this request, which need {needed}");
            return Err(RequestRefusal::invalid(format!("{path}.{field}"), message));
        }
    }
    Ok(())
}

fn decode(field: &str, text: &str) -> Result<Vec<u8>, RequestRefusal> {
    let refuse = |error| RequestRefusal::invalid(field, format!("is not base64: {error}"));
    BASE64.decode(text).map_err(refuse)
}

/// Returns the length of base64 for so many bytes.
fn base64_bytes(bytes: u64) -> u64 {
    bytes.div_ceil(3).saturating_mul(4)
}

fn len_of<T>(items: &[T]) -> u64 {
    u64::try_from(items.len()).unwrap_or(u64::MAX)
}

fn len(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
