# Install a wheel or a source distribution into an empty environment, away from the sources, and use it:
#
#     sh tools/try_release.sh dist/FILE
set -e
root=$PWD
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
.venv/bin/python -m venv "$place/environment"
ENVIRONMENT="$place/environment" sh tools/install.sh --quiet "cyclegan-lab[train] @ file://$root/$1"

export PATH="$place/environment/bin:$PATH"
cp data/traces/public/v100_nanoseconds.json.gz "$place/trace.json.gz"
cd "$place"
labtrace report trace.json.gz
labkit doctor
labkit train --data fruit --size 32 --ngf 8 --ndf 8 --steps 10 --out run
python -c "import sys, labkit; assert labkit.__file__.startswith(sys.prefix), labkit.__file__"
echo "$1 works: $(du -sh environment | cut -f 1) installed, with PyTorch"
