// Real processes with a scripted model: nothing is left behind, however they end.
#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <fstream>

#include "tests/cluster/program.h"

namespace cluster {
namespace {

const std::string kModel =
    NUMOE_SOURCE_DIR "/models/fairy-tales-moe-21m-Q4_K_M.gguf";  // only its vocabulary is used

Launch scripted(std::vector<std::string> arguments, std::string script = {}) {
  return {
      .program = SCRIPTED_NUMOE, .arguments = std::move(arguments), .script = std::move(script)};
}

/// A run that does not end by itself within the time of a test.
Launch endless(int nodes) {
  return scripted({"run", kModel, "-p", "Once upon a time", "--nodes", std::to_string(nodes),
                   "--threads-per-node", "1", "--ignore-eos", "--ctx", "1000000", "--seed", "1"},
                  "step_us=1000");
}

/// Waits until the model is loaded and the answer has begun.
void wait_for_tokens(Program& program) {
  ASSERT_TRUE(program.wait_for_output("Once upon a time")) << program.error_output();
}

void expect_nothing_left(const Places& places, const std::vector<pid_t>& workers) {
  for (const pid_t pid : workers) EXPECT_TRUE(is_gone(pid)) << pid;
  EXPECT_EQ(places.leftovers(), "");
}

TEST(Processes, TheAnswerDoesNotDependOnTheNumberOfRanks) {
  std::string first;
  for (const char* nodes : {"1", "2", "4"}) {
    Places places;
    Program program(places, scripted({"run", kModel, "-p", "Once upon a time", "-n", "50", "--seed",
                                      "7", "--nodes", nodes, "--stats"}));
    ASSERT_EQ(program.wait(), 0) << program.error_output();
    EXPECT_TRUE(program.output().starts_with("Once upon a time"));
    if (first.empty()) first = program.output();
    EXPECT_EQ(program.output(), first);
    EXPECT_NE(program.error_output().find("generated: 50 tokens"), std::string::npos)
        << program.error_output();
    EXPECT_NE(program.error_output().find("waits:     5.5 per layer"), std::string::npos);
    EXPECT_NE(program.error_output().find("rank 0:    1.0 MB weights, 2.0 MB KV cache, 0.5 MB of "
                                          "the arena in huge pages, "),
              std::string::npos);
    EXPECT_NE(program.error_output().find("memory bound to no node"), std::string::npos);
    EXPECT_TRUE(program.errors().empty());
    expect_nothing_left(places, {});
  }
}

TEST(Processes, MemoryThatCouldNotBeBoundIsOneWarningAndInTheStatistics) {
  Places places;
  Program program(places, scripted({"run", kModel, "-p", "x", "-n", "3", "--seed", "1", "--nodes",
                                    "3", "--stats"},
                                   "bind_denied=1"));
  ASSERT_EQ(program.wait(), 0) << program.error_output();
  const std::string& said = program.error_output();
  const auto count = [&](std::string_view part) {
    size_t found = 0;
    for (size_t at = 0; (at = said.find(part, at)) != std::string::npos; at++) found++;
    return found;
  };
  EXPECT_EQ(count("warning: memory of rank 0 is not bound to node"), 1u) << said;
  EXPECT_EQ(count("--cap-add SYS_NICE"), 1u + 3u) << said;
}

TEST(Processes, SignalsEndItCleanlyWhileItAnswers) {
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    Places places;
    Program program(places, endless(2));
    wait_for_tokens(program);
    const auto workers = program.workers();
    EXPECT_EQ(workers.size(), 2u);
    program.signal(number);
    EXPECT_EQ(program.wait(), 128 + number);
    EXPECT_TRUE(program.errors().empty()) << program.error_output();
    expect_nothing_left(places, workers);
  }
}

TEST(Processes, AnIgnoredHangupStaysIgnored) {
  Places places;
  Launch launch = endless(2);
  launch.ignores_hangup = true;
  Program program(places, launch);
  wait_for_tokens(program);
  program.signal(SIGHUP);
  program.signal(SIGTERM);
  EXPECT_EQ(program.wait(), 128 + SIGTERM);  // the first one that it heard
}

TEST(Processes, CtrlCReachesTheWholeGroupAndIsStillClean) {
  Places places;
  Program program(places, endless(2));
  wait_for_tokens(program);
  const auto workers = program.workers();
  for (const pid_t pid : workers) ::kill(pid, SIGINT);
  program.signal(SIGINT);
  EXPECT_EQ(program.wait(), 130);
  EXPECT_TRUE(program.errors().empty()) << program.error_output();
  expect_nothing_left(places, workers);
}

TEST(Processes, SignalsEndItCleanlyWhileItLoads) {
  Places places;
  Launch launch = endless(2);
  launch.script = "load_forever=1";
  Program program(places, launch);
  std::vector<pid_t> workers;
  while (workers.size() < 2) workers = program.workers();
  program.signal(SIGTERM);
  EXPECT_EQ(program.wait(), 143);
  EXPECT_TRUE(program.errors().empty()) << program.error_output();
  expect_nothing_left(places, workers);
}

TEST(Processes, AKilledWorkerIsOneSentence) {
  for (const size_t victim : {0, 1, 2}) {
    Places places;
    Program program(places, endless(3));
    wait_for_tokens(program);
    const auto workers = program.workers();
    ASSERT_EQ(workers.size(), 3u);
    ::kill(workers[victim], SIGKILL);
    EXPECT_EQ(program.wait(), 1);
    ASSERT_EQ(program.errors().size(), 1u) << program.error_output();
    EXPECT_NE(program.errors()[0].find("worker " + std::to_string(victim) + " "),
              std::string::npos);
    EXPECT_NE(program.errors()[0].find("killed by signal 9"), std::string::npos);
    EXPECT_EQ(program.output().back(), '\n');
    expect_nothing_left(places, workers);
  }
}

TEST(Processes, AWorkerKilledWhileLoadingIsOneSentence) {
  Places places;
  Launch launch = endless(2);
  launch.script = "load_forever=0";
  Program program(places, launch);
  std::vector<pid_t> workers;
  while (workers.size() < 2) workers = program.workers();
  ::kill(workers[0], SIGKILL);
  EXPECT_EQ(program.wait(), 1);
  ASSERT_EQ(program.errors().size(), 1u) << program.error_output();
  EXPECT_NE(program.errors()[0].find("killed by signal 9"), std::string::npos);
  expect_nothing_left(places, workers);
}

TEST(Processes, WorkersDieWithTheMainProcessAndTheNextRunClearsAway) {
  Places places;
  std::vector<pid_t> workers;
  {
    Program program(places, endless(2));
    wait_for_tokens(program);
    workers = program.workers();
    ASSERT_EQ(workers.size(), 2u);
    program.signal(SIGKILL);
    EXPECT_EQ(program.wait(), -SIGKILL);
  }
  for (const pid_t pid : workers) EXPECT_TRUE(is_gone(pid));
  EXPECT_NE(places.leftovers(), "") << "the directories that nobody could remove";
  Program next(places, scripted({"run", kModel, "-p", "x", "-n", "3", "--seed", "1"}));
  EXPECT_EQ(next.wait(), 0) << next.error_output();
  expect_nothing_left(places, {});
}

TEST(Processes, ACrashIsOneSentence) {
  Places places;
  Program program(places, scripted({"run", kModel, "-p", "Once", "--nodes", "2", "--seed", "1"},
                                   "crash_at_step=3"));
  EXPECT_EQ(program.wait(), 1);
  ASSERT_EQ(program.errors().size(), 1u) << program.error_output();
  EXPECT_NE(program.errors()[0].find("worker 0 "), std::string::npos);
  EXPECT_NE(program.errors()[0].find("killed by signal 6"), std::string::npos);
  expect_nothing_left(places, {});
}

TEST(Processes, AFailureOfTheRunnerIsItsOwnSentence) {
  Places places;
  Program program(places, scripted({"run", kModel, "-p", "Once", "--nodes", "2", "--seed", "1"},
                                   "fail_at_step=3"));
  EXPECT_EQ(program.wait(), 1);
  ASSERT_EQ(program.errors().size(), 1u) << program.error_output();
  EXPECT_NE(program.errors()[0].find("rank 1 stopped answering"), std::string::npos);
  expect_nothing_left(places, {});
}

TEST(Processes, AFailureToLoadIsItsOwnSentence) {
  for (const char* rank : {"0", "1"}) {
    Places places;
    Program program(places, scripted({"run", kModel, "-p", "Once", "--nodes", "2"},
                                     std::string("load_error=") + rank));
    EXPECT_EQ(program.wait(), 1);
    ASSERT_EQ(program.errors().size(), 1u) << program.error_output();
    EXPECT_NE(program.errors()[0].find("the scripted memory is full"), std::string::npos);
    expect_nothing_left(places, {});
  }
}

TEST(Processes, AReaderThatLeavesEndsItQuietly) {
  Places places;
  Program program(places, endless(2));
  wait_for_tokens(program);
  const auto workers = program.workers();
  program.close_output();
  EXPECT_EQ(program.wait(), 1);
  EXPECT_TRUE(program.errors().empty()) << program.error_output();
  expect_nothing_left(places, workers);
}

TEST(Processes, AChatIsOneTurnALine) {
  Places places;
  Launch launch = scripted({"run", kModel, "-n", "5", "--temp", "0", "--system", "Be short."});
  launch.input = "Tell me a story.\n\nAnd another";
  Program program(places, launch);
  ASSERT_EQ(program.wait(), 0) << program.error_output();
  EXPECT_GE(std::count(program.output().begin(), program.output().end(), '\n'), 2);
  EXPECT_TRUE(program.errors().empty()) << program.error_output();
  expect_nothing_left(places, {});
}

TEST(Processes, ATurnThatDoesNotFitEndsThatTurnOnly) {
  Places places;
  Launch launch = scripted({"run", kModel, "-n", "5", "--temp", "0", "--ctx", "64"});
  launch.input = std::string(2000, 'x') + "\nHello\n";
  Program program(places, launch);
  ASSERT_EQ(program.wait(), 0) << program.error_output();
  ASSERT_EQ(program.errors().size(), 1u) << program.error_output();
  EXPECT_NE(program.errors()[0].find("exceeds the context of 64"), std::string::npos);
  EXPECT_FALSE(program.output().empty());
}

TEST(Processes, LogitsDoNotDependOnChunks) {
  std::string first;
  for (const char* chunk : {"0", "1", "3"}) {
    Places places;
    Program program(places,
                    scripted({"logits", kModel, "--tokens", "1 2 3 4,5", "--chunk", chunk}));
    ASSERT_EQ(program.wait(), 0) << program.error_output();
    if (first.empty()) first = program.output();
    EXPECT_EQ(program.output(), first);
    expect_nothing_left(places, {});
  }
  EXPECT_TRUE(first.starts_with("{\"positions\":[{\"top\":[["));
  size_t tops = 0;
  for (size_t at = 0; (at = first.find("\"top\"", at)) != std::string::npos; at++) tops++;
  EXPECT_EQ(tops, 5u);
  EXPECT_EQ(std::count(first.begin(), first.end(), ','), 5 * 8 * 2 - 5 + 4 + 1 + 4095 + 0);
}

TEST(Processes, PerplexityScoresTheSecondHalves) {
  Places places;
  const std::string text = places.sockets() + "/text";
  std::ofstream(text) << std::string(3000, 'x') << " a few words and more of them";
  Program program(places, scripted({"perplexity", kModel, "-f", text, "--ctx", "100"}));
  ASSERT_EQ(program.wait(), 0) << program.error_output();
  EXPECT_TRUE(program.output().starts_with("perplexity ")) << program.output();
  EXPECT_NE(program.output().find(" chunks of 100 tokens, "), std::string::npos)
      << program.output();
  EXPECT_NE(program.error_output().find("measuring: 100 %"), std::string::npos);
  Program too_short(places, scripted({"perplexity", kModel, "-f", text, "--ctx", "100000"}));
  EXPECT_EQ(too_short.wait(), 1);
  EXPECT_NE(too_short.errors().at(0).find("fewer than one chunk of 100000"), std::string::npos);
}

TEST(Processes, UsageAndFilesAreToldApartByTheExitCode) {
  Places places;
  const auto code = [&](std::vector<std::string> arguments) {
    Program program(places, scripted(std::move(arguments)));
    const int exit_code = program.wait();
    EXPECT_LE(program.errors().size(), 1u) << program.error_output();
    return exit_code;
  };
  EXPECT_EQ(code({"--version"}), 0);
  EXPECT_EQ(code({"--help"}), 0);
  EXPECT_EQ(code({"nonsense"}), 2);
  EXPECT_EQ(code({"run", kModel, "--temp", "hot"}), 2);
  EXPECT_EQ(code({"run", "/no/such/file", "-p", "x"}), 1);
  EXPECT_EQ(code({"run", NUMOE_SOURCE_DIR "/CMakeLists.txt", "-p", "x"}), 1);
  EXPECT_EQ(code({"logits", kModel, "--tokens", "1 two"}), 1);
  EXPECT_EQ(code({"logits", kModel, "--tokens", "99999"}), 1);
  EXPECT_EQ(code({"detokenize", kModel, "99999"}), 1);
  EXPECT_EQ(places.leftovers(), "");
}

TEST(Processes, TokensGoForthAndBack) {
  Places places;
  Launch launch = scripted({"tokenize", kModel});
  launch.input = "Once upon a time,\nthere was";
  Program there(places, launch);
  ASSERT_EQ(there.wait(), 0) << there.error_output();
  std::vector<std::string> arguments = {"detokenize", kModel};
  for (size_t at = 0; at < there.output().size();) {
    const size_t end = there.output().find_first_of(" \n", at);
    arguments.push_back(there.output().substr(at, end - at));
    at = end + 1;
  }
  Program back(places, scripted(arguments));
  ASSERT_EQ(back.wait(), 0) << back.error_output();
  EXPECT_EQ(back.output(), launch.input + "\n");
}

}  // namespace
}  // namespace cluster
