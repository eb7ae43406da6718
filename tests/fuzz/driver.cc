// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Runs a fuzz target where libFuzzer is not at hand: the corpus as it is, then a bounded number of seeded mutations.
// The corpus is every hex string of the JSON vectors in a directory, and every file of further directories.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "tests/fuzz/fuzz.h"
#include "tests/vectors/json.h"

extern "C" void __sanitizer_set_death_callback(void (*callback)()) __attribute__((weak));
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t max_size,
                                               unsigned int seed) __attribute__((weak));

namespace {

using Sample = std::vector<std::uint8_t>;
using Random = std::mt19937_64;

constexpr std::size_t kMaxSample = 8192;

Sample g_current;
Random g_random;

// Async-signal-safe: the process is about to die and its heap may be what broke.
void print_current() {
  static const char kDigits[] = "0123456789abcdef";
  char line[2 * kMaxSample + 1];
  const std::size_t n = std::min(g_current.size(), kMaxSample);
  for (std::size_t i = 0; i < n; ++i) {
    line[2 * i] = kDigits[g_current[i] >> 4];
    line[2 * i + 1] = kDigits[g_current[i] & 15];
  }
  line[2 * n] = '\n';
  static const char kSays[] = "input that broke the target:\n";
  if (write(STDERR_FILENO, kSays, sizeof kSays - 1) < 0 || write(STDERR_FILENO, line, 2 * n + 1) < 0) return;
}

void on_abort(int) {
  print_current();
}

void install_reporters() {
  struct sigaction action {};
  action.sa_handler = on_abort;
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  for (const int s : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL}) sigaction(s, &action, nullptr);
  if (__sanitizer_set_death_callback != nullptr) __sanitizer_set_death_callback(print_current);
}

bool from_hex(const std::string& text, Sample& out) {
  if (text.empty() || text.size() % 2 != 0) return false;
  for (std::size_t i = 0; i < text.size(); i += 2) {
    if (std::strspn(text.c_str() + i, "0123456789abcdef") < 2) return false;
    out.push_back(static_cast<std::uint8_t>(std::stoul(text.substr(i, 2), nullptr, 16)));
  }
  return true;
}

void collect_hex(const ewarp::test::Json& j, std::vector<Sample>& out) {
  if (j.is_string()) {
    Sample s;
    if (from_hex(j.get<std::string>(), s)) out.push_back(s);
  } else {
    for (const auto& element : j) collect_hex(element, out);
  }
}

void collect(const std::filesystem::path& directory, std::vector<Sample>& out) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(directory))
    if (entry.is_regular_file()) files.push_back(entry.path());
  std::sort(files.begin(), files.end());  // the same order, so the same run, everywhere
  for (const auto& file : files) {
    std::ifstream in(file, std::ios::binary);
    if (file.extension() == ".json") {
      collect_hex(ewarp::test::Json::parse(std::string{std::istreambuf_iterator<char>(in), {}}), out);
    } else if (file.extension() == ".bin" || file.extension().empty()) {  // libFuzzer's names have none
      const std::string text{std::istreambuf_iterator<char>(in), {}};
      out.emplace_back(text.begin(), text.end());
    }
  }
}

std::size_t below(Random& random, std::size_t n) {
  return n == 0 ? 0 : random() % n;
}

void mutate_once(Sample& s, const std::vector<Sample>& corpus, Random& random) {
  static constexpr std::uint8_t kNotable[] = {0x00, 0x01, 0x7f, 0x80, 0xff, 0x0d, 0x0e, 0x40, 0xc0};
  const std::size_t at = below(random, s.size());
  const auto offset = [](std::size_t n) { return static_cast<std::ptrdiff_t>(n); };
  switch (random() % 8) {
    case 0:
      if (!s.empty()) s[at] ^= static_cast<std::uint8_t>(1u << random() % 8);
      break;
    case 1:
      if (!s.empty()) s[at] = static_cast<std::uint8_t>(random());
      break;
    case 2:
      if (!s.empty()) s[at] = kNotable[below(random, std::size(kNotable))];
      break;
    case 3:
      s.insert(s.begin() + offset(at), static_cast<std::uint8_t>(random()));
      break;
    case 4:
      if (!s.empty()) s.erase(s.begin() + offset(at));
      break;
    case 5:
      s.resize(at);
      break;
    case 6: {  // another one behind this one: streams of several frames
      const Sample& other = corpus[below(random, corpus.size())];
      s.insert(s.end(), other.begin(), other.end());
      break;
    }
    case 7: {  // a stretch doubled
      const Sample part(s.begin() + offset(at), s.begin() + offset(at + below(random, s.size() - at)));
      s.insert(s.begin() + offset(at), part.begin(), part.end());
      break;
    }
  }
  if (s.size() > kMaxSample) s.resize(kMaxSample);
}

// As libFuzzer does: by the target's own mutator where it has one, and in any case now and then by none.
void mutate(Sample& s, const std::vector<Sample>& corpus) {
  if (LLVMFuzzerCustomMutator == nullptr || g_random() % 8 == 0) return mutate_once(s, corpus, g_random);
  const std::size_t size = s.size();
  s.resize(kMaxSample);
  s.resize(
      LLVMFuzzerCustomMutator(s.data(), std::min(size, kMaxSample), kMaxSample, static_cast<unsigned>(g_random())));
}

void run(Sample sample) {
  g_current = std::move(sample);
  // Exactly sized, so that a read past the end is seen.
  const Sample copy(g_current.begin(), g_current.end());
  LLVMFuzzerTestOneInput(copy.data(), copy.size());
}

// One file a sample, for libFuzzer to begin with.
int write_corpus(const std::vector<Sample>& corpus, const std::filesystem::path& directory) {
  std::filesystem::create_directories(directory);
  for (std::size_t i = 0; i < corpus.size(); ++i) {
    std::ofstream out(directory / (std::to_string(i) + ".bin"), std::ios::binary);
    out.write(reinterpret_cast<const char*>(corpus[i].data()), static_cast<std::streamsize>(corpus[i].size()));
    if (!out) return std::fprintf(stderr, "%s cannot be written\n", directory.c_str()), 1;
  }
  return 0;
}

int usage() {
  std::fprintf(stderr, "usage: [--runs N] [--seed S] [--write DIR] [--hex INPUT] CORPUS_DIR...\n");
  return 2;
}

}  // namespace

// What libFuzzer offers to a target's own mutator.
extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size) {
  Sample s(data, data + size);
  mutate_once(s, {Sample(size, 0)}, g_random);
  s.resize(std::min(s.size(), max_size));
  std::copy(s.begin(), s.end(), data);
  return s.size();
}

int main(int argc, char** argv) {
  std::uint64_t runs = 20000, seed = 1;
  std::vector<Sample> corpus;
  std::string write_to, one;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    const bool has_value = i + 1 < argc;
    if (arg == "--runs" && has_value)
      runs = std::stoull(argv[++i]);
    else if (arg == "--seed" && has_value)
      seed = std::stoull(argv[++i]);
    else if (arg == "--write" && has_value)
      write_to = argv[++i];
    else if (arg == "--hex" && has_value)
      one = argv[++i];
    else if (arg.rfind("--", 0) == 0)
      return usage();
    else
      collect(arg, corpus);
  }
  install_reporters();
  if (!one.empty()) {
    Sample s;
    if (!from_hex(one, s)) return usage();
    run(s);
    return 0;
  }
  if (corpus.empty()) return usage();
  if (!write_to.empty()) return write_corpus(corpus, write_to);

  run({});
  for (const Sample& s : corpus) run(s);
  g_random.seed(seed);
  for (std::uint64_t i = 0; i < runs; ++i) {
    Sample s = corpus[below(g_random, corpus.size())];
    for (std::uint64_t n = 1 + g_random() % 4; n > 0; --n) mutate(s, corpus);
    run(std::move(s));
  }
  std::printf("%zu samples, %llu mutations with seed %llu: nothing found\n", corpus.size(),
              static_cast<unsigned long long>(runs), static_cast<unsigned long long>(seed));
  return 0;
}
